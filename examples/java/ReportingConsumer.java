import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Fails each record that comes for the first time, reports it to redrive, and processes its retry. Ends after so many processed records.
 *
 * Arguments: brokers, topic of the reports, consumer group, how many records, and the topics.
 */
public class ReportingConsumer {
    public static void main(String[] arguments) throws Exception {
        var reports = arguments[1];
        var group = arguments[2];
        var left = Integer.parseInt(arguments[3]);
        Map<String, Object> brokers = Map.of("bootstrap.servers", arguments[0]);
        Map<String, Object> reading = Map.of(
            "bootstrap.servers", arguments[0], "group.id", group, "auto.offset.reset", "earliest", "enable.auto.commit", "false",
            "isolation.level", "read_committed");
        // keys and values as bytes, so that they are sent back unchanged
        try (var consumer = new KafkaConsumer<>(reading, new ByteArrayDeserializer(), new ByteArrayDeserializer());
             var producer = new KafkaProducer<>(brokers, new ByteArraySerializer(), new ByteArraySerializer())) {
            consumer.subscribe(List.of(arguments).subList(4, arguments.length));
            while (left > 0) {
                for (var record : consumer.poll(Duration.ofMillis(200))) {
                    try {
                        process(record);
                        left--;
                    } catch (Exception error) {
                        report(producer, reports, record, group, error);
                    }
                    // after the report was acknowledged: otherwise a crash would lose the failure
                    consumer.commitSync(Map.of(
                        new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1)));
                }
            }
        }
    }

    static void process(ConsumerRecord<byte[], byte[]> record) throws Exception {
        if (record.headers().lastHeader("redrive-delivery") == null) {
            throw new TimeoutException("no answer within 2 s");
        }
        System.out.println("processed " + new String(record.value(), StandardCharsets.UTF_8) + " of " + record.topic());
    }

    /** Reports a failure, and waits until the report is acknowledged. */
    static void report(
            Producer<byte[], byte[]> producer, String reports, ConsumerRecord<byte[], byte[]> record, String group, Exception error)
            throws Exception {
        var headers = new RecordHeaders(record.headers().toArray());
        Map.of(
            "redrive-original-topic", record.topic(),
            "redrive-original-partition", Integer.toString(record.partition()),
            "redrive-original-offset", Long.toString(record.offset()),
            "redrive-original-timestamp", Long.toString(record.timestamp()),
            "redrive-consumer-group", group,
            "redrive-failed-at", Long.toString(System.currentTimeMillis()),
            "redrive-error-class", error.getClass().getName(),
            "redrive-error-message", String.valueOf(error.getMessage())
        ).forEach((name, value) -> headers.add(name, value.getBytes(StandardCharsets.UTF_8)));
        producer.send(new ProducerRecord<>(reports, null, record.key(), record.value(), headers)).get();
    }
}
