import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.LogAndContinueProcessingExceptionHandler;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;

/**
 * A topology whose failures go to the dead letter topic of its exception handler, where redrive reads them.
 *
 * System properties: brokers, reports (that topic), topics, group (the application's id), count (ends after so many processed records).
 */
public class StreamsConsumer {
    private static final CountDownLatch PROCESSED = new CountDownLatch(Integer.getInteger("count"));

    public static void main(String[] arguments) throws Exception {
        var settings = new Properties();
        settings.put("application.id", System.getProperty("group"));
        settings.put("bootstrap.servers", System.getProperty("brokers"));
        settings.put("state.dir", System.getProperty("java.io.tmpdir"));
        settings.put("errors.dead.letter.queue.topic.name", System.getProperty("reports"));
        settings.put("processing.exception.handler", LogAndContinueProcessingExceptionHandler.class);
        settings.put("default.key.serde", Serdes.ByteArraySerde.class);
        settings.put("default.value.serde", Serdes.ByteArraySerde.class);
        settings.put("auto.offset.reset", "earliest");
        settings.put("commit.interval.ms", 200);
        var builder = new StreamsBuilder();
        builder.<byte[], byte[]>stream(List.of(System.getProperty("topics").split(","))).processValues(Processing::new);
        try (var streams = new KafkaStreams(builder.build(), settings)) {
            streams.start();
            PROCESSED.await();
        }
    }

    static class Processing extends ContextualFixedKeyProcessor<byte[], byte[], byte[]> {
        @Override
        public void process(FixedKeyRecord<byte[], byte[]> record) {
            if (record.headers().lastHeader("redrive-delivery") == null) {
                throw new IllegalStateException("not yet");
            }
            System.out.println("processed " + new String(record.value()));
            PROCESSED.countDown();
        }
    }
}
