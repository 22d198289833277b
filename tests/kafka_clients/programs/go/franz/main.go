// Writes and reads records with franz-go: franz write SERVERS TOPIC CODEC, or franz read SERVERS TOPIC GROUP COUNT.
package main

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kafkaclients/lines"
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func main() {
	verb, servers, topic := os.Args[1], strings.Split(os.Args[2], ","), os.Args[3]
	within, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if verb == "write" {
		write(within, servers, topic, codecs[os.Args[4]])
	} else {
		count, problem := strconv.Atoi(os.Args[5])
		lines.Must(problem)
		read(within, servers, topic, os.Args[4], count)
	}
}

func write(within context.Context, servers []string, topic string, codec kgo.CompressionCodec) {
	client, problem := kgo.NewClient(
		kgo.SeedBrokers(servers...),
		kgo.DefaultProduceTopic(topic),
		kgo.ProducerBatchCompression(codec),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	lines.Must(problem)
	defer client.Close()
	var records []*kgo.Record
	for _, line := range lines.Read() {
		record := &kgo.Record{
			Partition: line.Partition, Key: line.Key, Value: line.Value, Timestamp: time.UnixMilli(line.Timestamp),
		}
		for _, header := range line.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: header.Name, Value: header.Value})
		}
		records = append(records, record)
	}
	lines.Must(client.ProduceSync(within, records...).FirstErr())
}

func read(within context.Context, servers []string, topic string, group string, count int) {
	client, problem := kgo.NewClient(
		kgo.SeedBrokers(servers...),
		kgo.ConsumeTopics(topic),
		kgo.ConsumerGroup(group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.Rack(os.Getenv("CLIENT_RACK")),
		// By default it stays for 30 minutes with a replica whose node is dead.
		kgo.RecheckPreferredReplicaInterval(time.Second),
	)
	lines.Must(problem)
	defer client.Close()
	for count > 0 {
		fetched := client.PollRecords(within, count)
		lines.Must(fetched.Err())
		fetched.EachRecord(func(record *kgo.Record) {
			line := lines.Record{
				Partition: record.Partition, Offset: record.Offset, Timestamp: record.Timestamp.UnixMilli(),
				Key: record.Key, Value: record.Value,
			}
			for _, header := range record.Headers {
				line.Headers = append(line.Headers, lines.Header{Name: header.Key, Value: header.Value})
			}
			lines.Print(line)
			count--
		})
	}
	lines.Must(client.CommitUncommittedOffsets(within))
}
