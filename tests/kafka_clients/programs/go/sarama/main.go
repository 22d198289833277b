// Writes and reads records with sarama: sarama write SERVERS TOPIC CODEC, or sarama read SERVERS TOPIC GROUP COUNT.
package main

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"kafkaclients/lines"
)

var codecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

func main() {
	verb, servers, topic := os.Args[1], strings.Split(os.Args[2], ","), os.Args[3]
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	if verb == "write" {
		write(config, servers, topic, codecs[os.Args[4]])
	} else {
		count, problem := strconv.Atoi(os.Args[5])
		lines.Must(problem)
		read(config, servers, topic, os.Args[4], count)
	}
}

func write(config *sarama.Config, servers []string, topic string, codec sarama.CompressionCodec) {
	config.Producer.Compression = codec
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	producer, problem := sarama.NewSyncProducer(servers, config)
	lines.Must(problem)
	var messages []*sarama.ProducerMessage
	for _, line := range lines.Read() {
		message := &sarama.ProducerMessage{Topic: topic, Partition: line.Partition, Timestamp: time.UnixMilli(line.Timestamp)}
		if line.Key != nil {
			message.Key = sarama.ByteEncoder(line.Key)
		}
		if line.Value != nil {
			message.Value = sarama.ByteEncoder(line.Value)
		}
		for _, header := range line.Headers {
			message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(header.Name), Value: header.Value})
		}
		messages = append(messages, message)
	}
	lines.Must(producer.SendMessages(messages))
	lines.Must(producer.Close())
}

// reader passes on what its group's claims bring.
type reader struct {
	taken chan *sarama.ConsumerMessage
}

func (reader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (reader reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		select {
		case reader.taken <- message:
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
	return nil
}

func read(config *sarama.Config, servers []string, topic string, name string, count int) {
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.RackID = os.Getenv("CLIENT_RACK")
	group, problem := sarama.NewConsumerGroup(servers, name, config)
	lines.Must(problem)
	within, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ended, taken := make(chan error, 1), make(chan *sarama.ConsumerMessage)
	go func() { ended <- group.Consume(within, []string{topic}, reader{taken}) }()
	for ; count > 0; count-- {
		select {
		case message := <-taken:
			line := lines.Record{
				Partition: message.Partition, Offset: message.Offset, Timestamp: message.Timestamp.UnixMilli(),
				Key: message.Key, Value: message.Value,
			}
			for _, header := range message.Headers {
				line.Headers = append(line.Headers, lines.Header{Name: string(header.Key), Value: header.Value})
			}
			lines.Print(line)
		case problem := <-ended:
			lines.Must(problem)
			os.Exit(1)
		}
	}
	cancel()
	lines.Must(group.Close())
}
