import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.annotation.DltHandler;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.annotation.EnableKafkaRetryTopic;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.annotation.RetryableTopic;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.core.ConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaAdmin;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.retry.annotation.Backoff;
import org.springframework.scheduling.TaskScheduler;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;

/**
 * A listener with Spring's own retry topics, which fails each record to the end: its dead letters can be adopted.
 *
 * System properties: brokers, topics (one), group, count (ends after so many dead letters).
 */
@EnableKafka
@EnableKafkaRetryTopic
@Configuration(proxyBeanMethods = false)
public class RetryableConsumer {
    private static final CountDownLatch DEAD = new CountDownLatch(Integer.getInteger("count"));

    public static void main(String[] arguments) throws Exception {
        try (var context = new AnnotationConfigApplicationContext(RetryableConsumer.class)) {
            DEAD.await();
        }
    }

    @RetryableTopic(attempts = "3", backoff = @Backoff(delay = 100), kafkaTemplate = "template")
    @KafkaListener(topics = "#{systemProperties['topics']}", groupId = "#{systemProperties['group']}")
    void process(ConsumerRecord<byte[], byte[]> record) {
        throw new IllegalStateException("not yet");
    }

    @DltHandler
    void dead(ConsumerRecord<byte[], byte[]> record) {
        System.out.println("dead " + new String(record.value()) + " of " + record.topic());
        DEAD.countDown();
    }

    @Bean
    ConcurrentKafkaListenerContainerFactory<byte[], byte[]> kafkaListenerContainerFactory(ConsumerFactory<byte[], byte[]> consumers) {
        var factory = new ConcurrentKafkaListenerContainerFactory<byte[], byte[]>();
        factory.setConsumerFactory(consumers);
        return factory;
    }

    @Bean
    ConsumerFactory<byte[], byte[]> consumerFactory() {
        return new DefaultKafkaConsumerFactory<>(
            Map.of("bootstrap.servers", System.getProperty("brokers"), "auto.offset.reset", "earliest"),
            new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    @Bean
    KafkaTemplate<byte[], byte[]> template() {
        return new KafkaTemplate<>(new DefaultKafkaProducerFactory<>(
            Map.of("bootstrap.servers", System.getProperty("brokers")), new ByteArraySerializer(), new ByteArraySerializer()));
    }

    @Bean
    KafkaAdmin admin() {
        return new KafkaAdmin(Map.of("bootstrap.servers", System.getProperty("brokers")));
    }

    @Bean
    TaskScheduler scheduler() {
        return new ThreadPoolTaskScheduler();
    }
}
