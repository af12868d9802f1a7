// Fails each record that comes for the first time, reports it to redrive, and processes its retry. Ends after so many processed records.
//
// Arguments: brokers, topic of the reports, consumer group, how many records, and the topics.
import { Kafka, logLevel } from 'kafkajs'

const [brokers, reports, group, count, ...topics] = process.argv.slice(2)

function processed(topic, message) {
  if (!('redrive-delivery' in message.headers)) throw new Error('no answer within 2 s')
  console.log(`processed ${message.value} of ${topic}`)
}

// Reports a failure, and waits until the report is acknowledged.
async function report(producer, topic, partition, message, error) {
  await producer.send({
    topic: reports,
    acks: -1,
    messages: [{
      key: message.key,
      value: message.value,
      headers: {
        // an object can't hold a name twice: the headers of an earlier failure are replaced, and the last of a name counts in any case
        ...message.headers,
        'redrive-original-topic': topic,
        'redrive-original-partition': String(partition),
        'redrive-original-offset': message.offset,
        'redrive-original-timestamp': message.timestamp,
        'redrive-consumer-group': group,
        'redrive-failed-at': String(Date.now()),
        'redrive-error-class': error.name,
        'redrive-error-message': error.message,
      },
    }],
  })
}

const kafka = new Kafka({ brokers: [brokers], logLevel: logLevel.ERROR })
const producer = kafka.producer({ idempotent: true })
const consumer = kafka.consumer({ groupId: group, readUncommitted: false })
await producer.connect()
await consumer.connect()
await consumer.subscribe({ topics, fromBeginning: true })
let left = Number(count)
await new Promise((resolve) => consumer.run({
  autoCommit: false,
  eachMessage: async ({ topic, partition, message }) => {
    try {
      processed(topic, message)
      left--
    } catch (error) {
      await report(producer, topic, partition, message, error)
    }
    // after the report was acknowledged: otherwise a crash would lose the failure
    await consumer.commitOffsets([{ topic, partition, offset: String(BigInt(message.offset) + 1n) }])
    if (left <= 0) resolve()
  },
}))
await consumer.disconnect()
await producer.disconnect()
