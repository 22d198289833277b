// Passes numbers on with kafka-go, at least once: kafkago SERVERS.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"

	"kafkaclients/lines"
)

func main() {
	servers := strings.Split(os.Args[1], ",")
	stopped, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: servers, GroupID: "kafka-go", Topic: "numbers", StartOffset: kafka.FirstOffset,
		MaxWait: 100 * time.Millisecond,
	})
	writer := &kafka.Writer{
		Addr: kafka.TCP(servers...), Topic: "results", RequiredAcks: kafka.RequireAll, BatchTimeout: 5 * time.Millisecond,
	}
	for {
		record, problem := reader.FetchMessage(stopped)
		if errors.Is(problem, context.Canceled) {
			break
		}
		lines.Must(problem)
		lines.Must(writer.WriteMessages(context.Background(), kafka.Message{Key: record.Key, Value: record.Value}))
		lines.Must(reader.CommitMessages(context.Background(), record))
	}
	lines.Must(writer.Close())
	lines.Must(reader.Close())
}
