"""Kafka's errors, and the kind of each: whatever client reports it, by class, number or name."""

from __future__ import annotations

from tests.dbt.classification_cases import NPE, TIMEOUT, Case, fails

KAFKA: dict[str, tuple[str, str]] = {
    "backpressure": (
        "-184 _QUEUE_FULL",
        "org.apache.kafka.clients.producer.BufferExhaustedException",
    ),
    "quota": (
        "89 THROTTLING_QUOTA_EXCEEDED",
        "org.apache.kafka.common.errors.ThrottlingQuotaExceededException ThrottlingQuotaExceededException "
        "kafka.errors.ThrottlingQuotaExceededError kafka.errors.QuotaViolationError aiokafka.errors.QuotaViolationError",
    ),
    "fenced": (
        "-144 _FENCED  47 INVALID_PRODUCER_EPOCH  90 PRODUCER_FENCED",
        "org.apache.kafka.common.errors.ProducerFencedException ProducerFencedException kafka.errors.ProducerFencedError "
        "aiokafka.errors.ProducerFenced org.apache.kafka.common.errors.InvalidProducerEpochException "
        "kafka.errors.InvalidProducerEpochError "
        "aiokafka.errors.InvalidProducerEpoch org.apache.kafka.common.errors.FencedInstanceIdException kafka.errors.FencedInstanceIdError",
    ),
    "fatal": (
        "-169 _AUTHENTICATION  -181 _SSL  -150 _FATAL  29 TOPIC_AUTHORIZATION_FAILED  30 GROUP_AUTHORIZATION_FAILED  "
        "31 CLUSTER_AUTHORIZATION_FAILED  53 TRANSACTIONAL_ID_AUTHORIZATION_FAILED  58 SASL_AUTHENTICATION_FAILED  "
        "35 UNSUPPORTED_VERSION  48 INVALID_TXN_STATE  21 INVALID_REQUIRED_ACKS",
        "org.apache.kafka.common.errors.TopicAuthorizationException TopicAuthorizationException kafka.errors.TopicAuthorizationFailedError "
        "aiokafka.errors.TopicAuthorizationFailedError org.apache.kafka.common.errors.GroupAuthorizationException "
        "kafka.errors.GroupAuthorizationFailedError org.apache.kafka.common.errors.ClusterAuthorizationException "
        "ClusterAuthorizationException "
        "kafka.errors.ClusterAuthorizationFailedError org.apache.kafka.common.errors.TransactionalIdAuthorizationException "
        "kafka.errors.TransactionalIdAuthorizationFailedError aiokafka.errors.TransactionalIdAuthorizationFailed "
        "org.apache.kafka.common.errors.AuthorizationException kafka.errors.AuthorizationError "
        "org.apache.kafka.common.errors.SaslAuthenticationException SaslAuthenticationException kafka.errors.SaslAuthenticationFailedError "
        "aiokafka.errors.SaslAuthenticationFailed org.apache.kafka.common.errors.SslAuthenticationException "
        "org.apache.kafka.common.errors.AuthenticationException aiokafka.errors.AuthenticationFailedError "
        "aiokafka.errors.AuthenticationMethodNotSupported kafka.errors.UnsupportedSaslMechanismError kafka.errors.IllegalSaslStateError "
        "org.apache.kafka.common.errors.UnsupportedVersionException kafka.errors.UnsupportedVersionError "
        "kafka.errors.IncompatibleBrokerVersion org.apache.kafka.common.errors.InvalidTxnStateException kafka.errors.InvalidTxnStateError "
        "aiokafka.errors.InvalidTxnState org.apache.kafka.common.errors.InvalidRequiredAcksException kafka.errors.InvalidRequiredAcksError "
        "KafkaJSSASLAuthenticationError KafkaJSServerDoesNotSupportApiKey KafkaJSNotImplemented KafkaJSNonRetriableError",
    ),
    "poison": (
        "2 INVALID_MSG CORRUPT_MESSAGE  10 MSG_SIZE_TOO_LARGE MESSAGE_TOO_LARGE MESSAGE_SIZE_TOO_LARGE  "
        "17 TOPIC_EXCEPTION INVALID_TOPIC_EXCEPTION INVALID_TOPIC  18 RECORD_LIST_TOO_LARGE  76 UNSUPPORTED_COMPRESSION_TYPE  "
        "87 INVALID_RECORD  44 POLICY_VIOLATION  -198 _BAD_COMPRESSION",
        "org.apache.kafka.common.errors.CorruptRecordException CorruptRecordException kafka.errors.CorruptRecordError "
        "aiokafka.errors.CorruptRecordException aiokafka.errors.InvalidMessageError org.apache.kafka.common.errors.RecordTooLargeException "
        "RecordTooLargeException kafka.errors.MessageSizeTooLargeError aiokafka.errors.MessageSizeTooLargeError "
        "aiokafka.errors.RecordTooLargeError org.apache.kafka.common.errors.RecordBatchTooLargeException "
        "kafka.errors.RecordListTooLargeError "
        "org.apache.kafka.common.errors.InvalidTopicException kafka.errors.InvalidTopicError "
        "org.apache.kafka.common.errors.UnsupportedCompressionTypeException kafka.errors.UnsupportedCompressionTypeError "
        "kafka.errors.UnsupportedCodecError org.apache.kafka.common.InvalidRecordException kafka.errors.InvalidRecordError "
        "org.apache.kafka.common.errors.PolicyViolationException kafka.errors.PolicyViolationError "
        "KafkaJSPartialMessageError KafkaJSUnsupportedMagicByteInMessageSet KafkaJSInvalidVarIntError KafkaJSInvalidLongError",
    ),
    "retriable": (
        "-190 _UNKNOWN_PARTITION  -188 _UNKNOWN_TOPIC  3 UNKNOWN_TOPIC_OR_PART UNKNOWN_TOPIC_OR_PARTITION  5 LEADER_NOT_AVAILABLE  "
        "6 NOT_LEADER_FOR_PARTITION NOT_LEADER_OR_FOLLOWER  7 REQUEST_TIMED_OUT  8 BROKER_NOT_AVAILABLE  9 REPLICA_NOT_AVAILABLE  "
        "13 NETWORK_EXCEPTION  14 COORDINATOR_LOAD_IN_PROGRESS GROUP_LOAD_IN_PROGRESS  "
        "15 COORDINATOR_NOT_AVAILABLE GROUP_COORDINATOR_NOT_AVAILABLE  19 NOT_ENOUGH_REPLICAS  20 NOT_ENOUGH_REPLICAS_AFTER_APPEND  "
        "74 FENCED_LEADER_EPOCH  75 UNKNOWN_LEADER_EPOCH  -187 _ALL_BROKERS_DOWN  -195 _TRANSPORT  -196 _FAIL  -185 _TIMED_OUT  "
        "-192 _MSG_TIMED_OUT",
        "org.apache.kafka.common.errors.UnknownTopicOrPartitionException kafka.errors.UnknownTopicOrPartitionError "
        "org.apache.kafka.common.errors.LeaderNotAvailableException kafka.errors.LeaderNotAvailableError "
        "org.apache.kafka.common.errors.NotLeaderOrFollowerException kafka.errors.NotLeaderForPartitionError "
        "org.apache.kafka.common.errors.TimeoutException kafka.errors.RequestTimedOutError kafka.errors.KafkaTimeoutError "
        "aiokafka.errors.KafkaTimeoutError org.apache.kafka.common.errors.BrokerNotAvailableException kafka.errors.BrokerNotAvailableError "
        "org.apache.kafka.common.errors.ReplicaNotAvailableException kafka.errors.ReplicaNotAvailableError "
        "org.apache.kafka.common.errors.NetworkException kafka.errors.NetworkExceptionError kafka.errors.KafkaConnectionError "
        "org.apache.kafka.common.errors.CoordinatorLoadInProgressException kafka.errors.CoordinatorLoadInProgressError "
        "aiokafka.errors.GroupLoadInProgressError org.apache.kafka.common.errors.CoordinatorNotAvailableException "
        "kafka.errors.CoordinatorNotAvailableError aiokafka.errors.GroupCoordinatorNotAvailableError "
        "org.apache.kafka.common.errors.NotEnoughReplicasException kafka.errors.NotEnoughReplicasError "
        "org.apache.kafka.common.errors.NotEnoughReplicasAfterAppendException kafka.errors.NotEnoughReplicasAfterAppendError "
        "org.apache.kafka.common.errors.FencedLeaderEpochException kafka.errors.FencedLeaderEpochError "
        "org.apache.kafka.common.errors.UnknownLeaderEpochException kafka.errors.UnknownLeaderEpochError kafka.errors.NoBrokersAvailable "
        "kafka.errors.NodeNotReadyError org.apache.kafka.common.errors.DisconnectException KafkaJSConnectionError "
        "KafkaJSConnectionClosedError KafkaJSRequestTimeoutError KafkaJSBrokerNotFound KafkaJSNoBrokerAvailableError "
        "KafkaJSGroupCoordinatorNotFound KafkaJSMetadataNotLoaded KafkaJSTopicMetadataNotLoaded KafkaJSStaleTopicMetadataAssignment "
        "KafkaJSTimeout KafkaJSLockTimeout",
    ),
}
"""Kafka's errors by their kind: numbers, each with its names; and the classes of Java, kafka-python, aiokafka and KafkaJS."""

KAFKA_CODES = [(kind, tuple(error.split())) for kind, (errors, _) in KAFKA.items() for error in errors.split("  ")]


def _kafka_cases() -> list[Case]:
    """Each error as clients report it. None of them is left to the default, which would look at the causes that follow."""
    cases = []
    for kind, (_, classes) in KAFKA.items():
        cause = TIMEOUT if kind == "fatal" else NPE
        cases += [
            Case(error, fails("kafka", error, "x", f"{error}: x\nCaused by: {cause}: y\n"), kind, error, None) for error in classes.split()
        ]
    for kind, (number, name, *others) in KAFKA_CODES:
        # confluent-kafka writes the name into the text
        for error in ("cimpl.KafkaException", "confluent_kafka.error.ProduceError"):
            text = f'KafkaError{{code={name},val={number},str="x"}}'
            cases.append(Case(f"{error} {name}", fails("kafka", error, text), kind, name, None))
        for code in (number, name, *others):
            told = ("redrive-error-code", code)
            cases.append(Case(f"KafkaJSProtocolError {code}", fails("kafka", "KafkaJSProtocolError", "x", None, told), kind, name, None))
    # the last error of several tries stands in the stack
    exceeded = "KafkaJSNumberOfRetriesExceeded"
    stack = f"{exceeded}\n  Caused by: KafkaJSProtocolError: too large\n    at onResponse (connection.js:1:2)"
    reported = fails("kafka", exceeded, "too large", stack, ("redrive-error-code", "MESSAGE_TOO_LARGE"))
    return [*cases, Case(exceeded, reported, "poison", "MSG_SIZE_TOO_LARGE", None)]


KAFKA_CASES = _kafka_cases()
