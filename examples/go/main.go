// Fails each record that comes for the first time, reports it to redrive, and processes its retry. Ends after so many processed records.
//
// Arguments: brokers, topic of the reports, consumer group, how many records, and the topics.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var errNoAnswer = errors.New("no answer within 2 s")

func main() {
	brokers, reports, group := os.Args[1], os.Args[2], os.Args[3]
	left, err := strconv.Atoi(os.Args[4])
	if err != nil {
		log.Fatal(err)
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(os.Args[5:]...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.DisableAutoCommit(),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()
	for left > 0 {
		for _, record := range client.PollFetches(ctx).Records() {
			if err := process(record); err == nil {
				left--
			} else if err := report(ctx, client, reports, record, group, err); err != nil {
				log.Fatal(err)
			}
			// after the report was acknowledged: otherwise a crash would lose the failure
			if err := client.CommitRecords(ctx, record); err != nil {
				log.Fatal(err)
			}
		}
	}
}

func process(record *kgo.Record) error {
	if !slices.ContainsFunc(record.Headers, func(header kgo.RecordHeader) bool { return header.Key == "redrive-delivery" }) {
		return errNoAnswer
	}
	fmt.Printf("processed %s of %s\n", record.Value, record.Topic)
	return nil
}

// report tells redrive that a record failed, and waits until the report is acknowledged.
func report(ctx context.Context, client *kgo.Client, topic string, record *kgo.Record, group string, failure error) error {
	headers := slices.Clone(record.Headers)
	for name, value := range map[string]string{
		"redrive-original-topic":     record.Topic,
		"redrive-original-partition": strconv.Itoa(int(record.Partition)),
		"redrive-original-offset":    strconv.FormatInt(record.Offset, 10),
		"redrive-original-timestamp": strconv.FormatInt(record.Timestamp.UnixMilli(), 10),
		"redrive-consumer-group":     group,
		"redrive-failed-at":          strconv.FormatInt(time.Now().UnixMilli(), 10),
		"redrive-error-class":        fmt.Sprintf("%T", failure),
		"redrive-error-message":      failure.Error(),
	} {
		headers = append(headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	// a key or value that is nil stays nil: Kafka tells null from empty
	failed := &kgo.Record{Topic: topic, Key: record.Key, Value: record.Value, Headers: headers}
	return client.ProduceSync(ctx, failed).FirstErr()
}
