// Writes and reads records with KafkaJS: node kafkajs_client.mjs write SERVERS TOPIC CODEC, or … read SERVERS TOPIC GROUP COUNT.
import { createInterface } from "node:readline";

import kafkajs from "kafkajs";
import snappy from "kafkajs-snappy";

const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = kafkajs;
CompressionCodecs[CompressionTypes.Snappy] = snappy;

const CODECS = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy };

const [verb, servers, topic, ...rest] = process.argv.slice(2);
const kafka = new Kafka({ clientId: "kafkajs", brokers: servers.split(","), logLevel: logLevel.ERROR });

const bytes = (text) => (text === null ? null : Buffer.from(text, "base64"));
const text = (buffer) => (buffer === null || buffer === undefined ? null : buffer.toString("base64"));

async function write(codec) {
  const messages = [];
  for await (const line of createInterface({ input: process.stdin })) {
    const record = JSON.parse(line);
    const headers = {};
    for (const [name, value] of record.headers) (headers[name] ??= []).push(bytes(value));
    messages.push({
      partition: record.partition,
      timestamp: String(record.timestamp),
      key: bytes(record.key),
      value: bytes(record.value),
      headers,
    });
  }
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  await producer.send({ topic, acks: -1, compression: CODECS[codec], messages });
  await producer.disconnect();
}

async function read(groupId, count) {
  const consumer = kafka.consumer({ groupId });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  let left = Number(count);
  await new Promise((done, failed) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => failed(payload.error));
    consumer.run({
      eachMessage: async ({ partition, message }) => {
        const headers = [];
        for (const [name, value] of Object.entries(message.headers ?? {})) {
          for (const each of Array.isArray(value) ? value : [value]) headers.push([name, text(each)]);
        }
        const line = {
          partition,
          offset: Number(message.offset),
          timestamp: Number(message.timestamp),
          key: text(message.key),
          value: text(message.value),
          headers,
        };
        process.stdout.write(`${JSON.stringify(line)}\n`);
        left -= 1;
        if (left === 0) done();
      },
    });
  });
  await consumer.disconnect();
}

await (verb === "write" ? write(...rest) : read(...rest));
