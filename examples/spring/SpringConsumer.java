import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.core.ConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaOperations;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.DeadLetterPublishingRecoverer;
import org.springframework.kafka.listener.DefaultErrorHandler;
import org.springframework.util.backoff.FixedBackOff;

/**
 * A listener whose failures are published at once, by Spring's recoverer, and retried by redrive.
 *
 * System properties: brokers, reports (their topic), topics, group, count (ends after so many processed records).
 */
@EnableKafka
@Configuration(proxyBeanMethods = false)
public class SpringConsumer {
    private static final CountDownLatch PROCESSED = new CountDownLatch(Integer.getInteger("count"));

    public static void main(String[] arguments) throws Exception {
        try (var context = new AnnotationConfigApplicationContext(SpringConsumer.class)) {
            PROCESSED.await();
        }
    }

    @KafkaListener(topics = "#{systemProperties['topics'].split(',')}", groupId = "#{systemProperties['group']}")
    void process(ConsumerRecord<byte[], byte[]> record) {
        if (record.headers().lastHeader("redrive-delivery") == null) {
            throw new IllegalStateException("not yet");
        }
        System.out.println("processed " + new String(record.value()) + " of " + record.topic());
        PROCESSED.countDown();
    }

    @Bean
    DefaultErrorHandler errorHandler(KafkaOperations<?, ?> template) {
        // the partition -1 lets the key choose: the report topic may have fewer partitions
        var recoverer = new DeadLetterPublishingRecoverer(template,
                (record, exception) -> new TopicPartition(System.getProperty("reports"), -1));
        recoverer.setFailIfSendResultIsError(true);
        return new DefaultErrorHandler(recoverer, new FixedBackOff(0, 0));
    }

    @Bean
    ConcurrentKafkaListenerContainerFactory<byte[], byte[]> kafkaListenerContainerFactory(
            ConsumerFactory<byte[], byte[]> consumers, DefaultErrorHandler errorHandler) {
        var factory = new ConcurrentKafkaListenerContainerFactory<byte[], byte[]>();
        factory.setConsumerFactory(consumers);
        factory.setCommonErrorHandler(errorHandler);
        return factory;
    }

    @Bean
    ConsumerFactory<byte[], byte[]> consumerFactory() {
        return new DefaultKafkaConsumerFactory<>(
            Map.of("bootstrap.servers", System.getProperty("brokers"), "auto.offset.reset", "earliest", "isolation.level", "read_committed"),
            new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    @Bean
    KafkaTemplate<byte[], byte[]> template() {
        return new KafkaTemplate<>(new DefaultKafkaProducerFactory<>(
            Map.of("bootstrap.servers", System.getProperty("brokers")), new ByteArraySerializer(), new ByteArraySerializer()));
    }
}
