// What a KafkaJS client may do: the work `access` of ../programs/command_line.py.
//   node access.mjs --bootstrap HOST:PORT,... --ca FILE < cells
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

// The libraries are in the cache, not beside this file.
const require = createRequire(process.env.TIDEMARK_NODE_CLIENTS);
const { ConfigResourceTypes, Kafka, logLevel } = require("kafkajs");

const LIMIT_MS = 20_000;
const AT_A_TIME = 4;
const options = {};
for (let index = 2; index + 1 < process.argv.length; index += 2) {
  options[process.argv[index].slice(2)] = process.argv[index + 1];
}
const ca = [readFileSync(options.ca, "utf8")];

function sasl(cell) {
  if (cell.mechanism === "") return undefined;
  if (cell.mechanism === "OAUTHBEARER") {
    return { mechanism: "oauthbearer", oauthBearerProvider: async () => ({ value: cell.token }) };
  }
  return { mechanism: cell.mechanism.toLowerCase(), username: cell.user, password: cell.password };
}

function clientOf(cell) {
  return new Kafka({
    brokers: options.bootstrap.split(","),
    ssl: { ca },
    sasl: sasl(cell),
    logLevel: logLevel.NOTHING,
    connectionTimeout: LIMIT_MS,
    retry: { retries: 2, initialRetryTime: 100 },
  });
}

async function produce(kafka, cell) {
  const producer = kafka.producer();
  await producer.connect();
  try {
    await producer.send({ topic: cell.topic, acks: -1, messages: [{ value: "node" }] });
  } finally {
    await producer.disconnect();
  }
}

async function group(kafka, cell) {
  const consumer = kafka.consumer({ groupId: cell.group, retry: { retries: 0 } });
  await consumer.connect();
  try {
    await new Promise((resolve, reject) => {
      const limit = setTimeout(() => reject(named("NO_ANSWER")), LIMIT_MS);
      consumer.on(consumer.events.CRASH, (event) => {
        clearTimeout(limit);
        reject(event.payload.error);
      });
      const eachMessage = async ({ topic, partition, message }) => {
        await consumer.commitOffsets([
          { topic, partition, offset: String(Number(message.offset) + 1) },
        ]);
        clearTimeout(limit);
        resolve();
      };
      consumer
        .subscribe({ topics: [cell.topic], fromBeginning: true })
        .then(() => consumer.run({ autoCommit: false, eachMessage }))
        .catch((error) => {
          clearTimeout(limit);
          reject(error);
        });
    });
  } finally {
    await consumer.disconnect();
  }
}

async function administrate(kafka, cell) {
  const admin = kafka.admin();
  await admin.connect();
  const topic = cell.topic;
  try {
    if (cell.verb === "list") {
      if (!(await admin.listTopics()).includes(topic)) throw named("NOT_LISTED");
    } else if (cell.verb === "describe") {
      await admin.fetchTopicMetadata({ topics: [topic] });
    } else if (cell.verb === "create") {
      await admin.createTopics({
        waitForLeaders: false,
        topics: [{ topic, numPartitions: 1, replicationFactor: 3 }],
      });
    } else if (cell.verb === "alter") {
      const configEntries = [{ name: "retention.ms", value: "3600000" }];
      const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries }];
      await admin.alterConfigs({ validateOnly: false, resources });
    } else if (cell.verb === "delete") {
      await admin.deleteTopics({ topics: [topic] });
    } else {
      throw new Error(`expected a verb, found ${cell.verb}`);
    }
  } finally {
    await admin.disconnect();
  }
}

function named(type) {
  return Object.assign(new Error(type), { type });
}

function causes(error) {
  const found = [];
  for (let each = error; each; each = each.cause ?? each.errors?.[0]) found.push(each);
  return found;
}

function word(error) {
  for (const each of causes(error)) {
    if (each.type && each.type !== "UNKNOWN") return each.type;
    if (each.name === "KafkaJSSASLAuthenticationError") return "SASL_AUTHENTICATION_FAILED";
  }
  return "NO_ANSWER";
}

async function attempt(cell) {
  const event = { name: "access", identity: cell.identity, verb: cell.verb, error: "" };
  const work = { produce, group }[cell.verb] ?? administrate;
  try {
    await work(clientOf(cell), cell);
  } catch (error) {
    event.error = word(error);
    event.message = causes(error).map(String).join(": ");
  }
  console.log(JSON.stringify(event));
}

const sequences = new Map();
for (const cell of JSON.parse(readFileSync(0, "utf8"))) {
  sequences.set(cell.identity, [...(sequences.get(cell.identity) ?? []), cell]);
}
const waiting = [...sequences.values()];
async function worker() {
  while (waiting.length) {
    for (const cell of waiting.shift()) await attempt(cell);
  }
}
await Promise.all(Array.from({ length: AT_A_TIME }, worker));
process.exit(0);
