// What the page knows of one pool: topics, partitions, brokers, events. Pure: no DOM, no network.

const [NUMBER, LEADER, LEADER_EPOCH, , MIN_ISR, REPLICAS, ISR, ELIGIBLE, ADDING, REMOVING] =
  Array(10).keys();

export const NONE = -1;
const MAX_EVENTS = 10_000;
const FEW = 200; // partitions: with more than that, topics that are well are closed

// From well to not well; what is worse comes first in lists.
export const CLASSES = {
  ok: { rank: 0, mark: "✓", label: "in sync", many: "in sync" },
  retained: { rank: 1, mark: "▫", label: "retained", many: "retained" },
  moving: { rank: 2, mark: "⇄", label: "moving", many: "moving" },
  under: { rank: 3, mark: "▽", label: "under-replicated", many: "under-replicated" },
  atmin: { rank: 4, mark: "△", label: "at min ISR", many: "at min ISR" },
  belowmin: { rank: 5, mark: "▲", label: "below min ISR", many: "below min ISR" },
  offline: { rank: 6, mark: "✕", label: "no leader", many: "without a leader" },
  missing: { rank: 7, mark: "?", label: "missing", many: "missing" },
};

export const CELLS = {
  L: "leader",
  S: "in sync",
  C: "catching up",
  E: "eligible leader",
  F: "fenced",
  M: "missing broker",
};

const keyOf = (topicId, number, broker) => `${number}/${broker}/${topicId}`;

const BROKER_AFTER = {
  BrokerRegistered: ["Starting", "Fenced"],
  BrokerActive: ["Active", "Fenced"],
  BrokerDraining: ["Draining", "Active"],
  BrokerFenced: ["Fenced", "Active"],
  BrokerStorageFailed: ["Fenced", "Active"],
  BrokerRetired: ["Gone", "Fenced"],
};

export class Partition {
  constructor(row) {
    this.number = row[NUMBER];
    this.leader = row[LEADER];
    this.leaderEpoch = row[LEADER_EPOCH];
    this.minIsr = row[MIN_ISR];
    this.replicas = row[REPLICAS];
    this.isr = row[ISR];
    this.eligible = row[ELIGIBLE];
    this.adding = row[ADDING];
    this.removing = row[REMOVING];
    this.row = row;
  }

  classOf(isRetained) {
    if (isRetained) return "retained";
    if (this.leader === NONE) return "offline";
    if (this.isr.length < this.minIsr) return "belowmin";
    if (this.isr.length < this.replicas.length - this.adding.length) {
      return this.isr.length === this.minIsr ? "atmin" : "under";
    }
    return this.adding.length || this.removing.length ? "moving" : "ok";
  }

  // The state of the replica on a broker, one letter of CELLS.
  cell(brokerId, brokers) {
    if (brokerId === this.leader) return "L";
    if (this.isr.includes(brokerId)) return "S";
    if (this.eligible.includes(brokerId)) return "E";
    const broker = brokers.get(brokerId);
    if (!broker || broker.state === "Gone") return "M";
    return broker.state === "Active" || broker.state === "Draining" ? "C" : "F";
  }
}

export class Topic {
  constructor(id) {
    this.id = id;
    this.head = {
      topic: id, object: id, partitions: 0, retained: false, notices: [], missingSlices: [], config: {},
    };
    this.partitions = new Map();
    this.summary = null;
  }

  get name() {
    return this.head.topic;
  }

  summarize() {
    if (this.summary) return this.summary;
    const counts = {};
    let worst = "ok";
    const list = [];
    for (const partition of this.partitions.values()) {
      const found = partition.classOf(this.head.retained);
      counts[found] = (counts[found] ?? 0) + 1;
      if (CLASSES[found].rank > CLASSES[worst].rank) worst = found;
      list.push({ partition, klass: found });
    }
    const absent = Math.max(0, this.head.partitions - this.partitions.size);
    if (absent) {
      counts.missing = absent;
      worst = "missing";
    }
    list.sort(
      (a, b) =>
        CLASSES[b.klass].rank - CLASSES[a.klass].rank || a.partition.number - b.partition.number,
    );
    this.summary = { counts, worst, list, total: this.partitions.size + absent };
    return this.summary;
  }
}

export class Pool {
  constructor(name) {
    this.name = name;
    this.version = "";
    this.topics = new Map();
    this.brokers = new Map();
    this.events = []; // oldest first
    this.silence = {};
    this.disk = {}; // by broker: [free bytes, size, state]
    this.progress = new Map(); // of replicas that catch up
    this.counted = null;
  }

  setProgress(replicas) {
    this.progress = new Map(
      replicas.map(([id, number, broker, lag, rate, toGoMs]) => [keyOf(id, number, broker), { broker, lag, rate, toGoMs }]),
    );
  }

  progressOf(topic, partition, broker) {
    return this.progress.get(keyOf(topic.id, partition.number, broker));
  }

  // Records that a broker's replicas are behind, as far as they are read.
  lagOf(broker) {
    let lag = 0;
    for (const each of this.progress.values()) if (each.broker === broker) lag += each.lag;
    return lag;
  }

  begin(part) {
    this.name = part.pool;
    for (const broker of part.brokers) this.brokers.set(broker.id, broker);
  }

  apply(change) {
    if (change.version) this.version = change.version;
    for (const broker of change.brokers ?? []) this.setBroker(broker);
    for (const id of change.deleted ?? []) this.topics.delete(id);
    for (const found of change.topics ?? []) this.setTopic(found);
    this.addEvents(change.events ?? []);
    this.counted = null;
  }

  setBroker(broker) {
    const known = this.brokers.get(broker.id);
    this.brokers.set(broker.id, { ...known, ...broker });
  }

  setTopic(found) {
    let topic = this.topics.get(found.id);
    if (!topic) this.topics.set(found.id, (topic = new Topic(found.id)));
    if (found.head) topic.head = found.head;
    for (const row of found.rows) topic.partitions.set(row[NUMBER], new Partition(row));
    for (const number of found.gone ?? []) topic.partitions.delete(number);
    topic.summary = null;
  }

  addEvents(events) {
    const newest = this.events.at(-1)?.number ?? 0;
    for (const event of events) if (event.number > newest) this.events.push(event);
    if (this.events.length > MAX_EVENTS) this.events.splice(0, this.events.length - MAX_EVENTS);
  }

  addEarlier(events) {
    const oldest = this.events[0]?.number ?? Infinity;
    this.events = [...events.filter((event) => event.number < oldest), ...this.events];
  }

  topicNamed(name) {
    let found = null;
    for (const topic of this.topics.values()) {
      if (topic.name === name && (!found || !topic.head.retained)) found = topic;
    }
    return found;
  }

  counts() {
    if (this.counted) return this.counted;
    const classes = {};
    const byBroker = new Map();
    const of = (id) => {
      if (!byBroker.has(id)) byBroker.set(id, { leads: 0, inSync: 0, replicas: 0 });
      return byBroker.get(id);
    };
    let partitions = 0;
    for (const topic of this.topics.values()) {
      const { counts } = topic.summarize();
      for (const [klass, count] of Object.entries(counts)) {
        classes[klass] = (classes[klass] ?? 0) + count;
        partitions += count;
      }
      if (topic.head.retained) continue;
      for (const partition of topic.partitions.values()) {
        for (const id of partition.replicas) {
          const broker = of(id);
          broker.replicas += 1;
          if (partition.isr.includes(id)) broker.inSync += 1;
          if (partition.leader === id) broker.leads += 1;
        }
      }
    }
    this.counted = { classes, byBroker, partitions, topics: this.topics.size };
    return this.counted;
  }

  // The pool as it was, by undoing the events since then.
  at(ms) {
    const past = new Pool(this.name);
    past.brokers = new Map(this.brokers);
    past.topics = new Map(this.topics);
    past.silence = {};
    const copied = new Set();
    const brokers = new Map();
    let end = this.events.length;
    while (end && this.events[end - 1].atMs > ms) {
      const event = this.events[--end];
      if (event.topicId) undo(past, copied, event);
      if (event.kind in BROKER_AFTER) brokers.set(event.broker, BROKER_AFTER[event.kind][1]);
    }
    past.events = this.events.slice(0, end);
    for (const [id, state] of brokers) {
      const last = past.events.findLast((e) => e.broker === id && e.kind in BROKER_AFTER);
      past.setBroker({ id, state: last ? BROKER_AFTER[last.kind][0] : state });
    }
    return past;
  }
}

function undo(past, copied, event) {
  const known = past.topics.get(event.topicId);
  if (!known) return;
  let topic = known;
  if (!copied.has(event.topicId)) {
    topic = new Topic(known.id);
    topic.head = known.head;
    topic.partitions = new Map(known.partitions);
    past.topics.set(known.id, topic);
    copied.add(known.id);
  }
  if (event.before) topic.partitions.set(event.partition, new Partition(event.before));
  for (const number of event.created ?? []) topic.partitions.delete(number);
  if (event.created) {
    topic.head = { ...topic.head, partitions: topic.partitions.size };
    if (!topic.partitions.size) past.topics.delete(topic.id);
  }
}

// Two sentences or three: the worst first, with what it means for producers, which brokers are away,
// and whose disks are full.
export function healthOf(pool) {
  const [level, sentence] = healthOfPartitions(pool);
  const [worst, disks] = healthOfDisks(pool);
  if (!disks) return [level, sentence];
  const levels = ["good", "warn", "bad"];
  const isWorse = levels.indexOf(worst) > levels.indexOf(level);
  return isWorse ? [worst, `${disks} ${sentence}`] : [level, `${sentence} ${disks}`];
}

function healthOfDisks(pool) {
  const of = (state) => Object.entries(pool.disk).filter(([id, disk]) => disk[2] === state && pool.brokers.get(Number(id))?.state !== "Gone").map(([id]) => id);
  const [full, nearly] = [of("Full"), of("NearlyFull")];
  const whose = (ids) => (ids.length === 1 ? `The disk of broker ${ids[0]} is` : `The disks of brokers ${ids.slice(0, 3).join(", ")}${ids.length > 3 ? ` and ${ids.length - 3} more` : ""} are`);
  if (full.length) return ["bad", `${whose(full)} full: records are rejected there.`];
  if (nearly.length) return ["warn", `${whose(nearly)} nearly full.`];
  return ["good", ""];
}

function healthOfPartitions(pool) {
  const { classes, partitions, topics } = pool.counts();
  const brokers = [...pool.brokers.values()].filter((broker) => broker.state !== "Gone");
  const away = brokers.filter((broker) => broker.state !== "Active");
  const up = away.length && away.length <= 3
    ? away.map((broker) => `Broker ${broker.id} is ${broker.restarting ? "restarting" : broker.state.toLowerCase()}.`).join(" ")
    : `${brokers.length - away.length} of ${count(brokers.length, "broker")} active.`;
  const some = (number) => number === partitions
    ? (number === 1 ? "The only partition" : `All ${count(number, "partition")}`)
    : `${number.toLocaleString("en")} of ${count(partitions, "partition")}`;
  const is = (number) => (number === 1 ? "is" : "are");
  if (classes.missing) return ["bad", `${some(classes.missing)} cannot be read from the store. ${up}`];
  if (classes.offline) {
    const [has, take] = classes.offline === 1 ? ["has", "it takes"] : ["have", "they take"];
    return ["bad", `${some(classes.offline)} ${has} no leader: ${take} no reads or writes. ${up}`];
  }
  if (classes.belowmin) {
    const { belowmin } = classes;
    return ["bad", `${some(belowmin)} ${is(belowmin)} below min ISR: acks=all writes are rejected. ${up}`];
  }
  const atMin = classes.atmin ?? 0;
  const under = (classes.under ?? 0) + atMin;
  if (under) {
    const all = atMin === under ? "at min ISR" : `under-replicated, ${atMin.toLocaleString("en")} at min ISR`;
    const meaning = atMin ? `${all}: one more loss stops acks=all writes.` : "under-replicated. All accept writes.";
    return ["warn", `${some(under)} ${is(under)} ${meaning} ${up}`];
  }
  if (!partitions) return [away.length ? "warn" : "good", `No topics yet. ${up}`];
  const moving = classes.moving ? `, ${classes.moving.toLocaleString("en")} moving` : "";
  const all = partitions === 1 ? "The only partition is in sync" : `All ${count(partitions, "partition")} of ${count(topics, "topic")} are in sync`;
  return [away.length ? "warn" : "good", `${all}${moving}. ${up}`];
}

// What an action does, in sentences: asked before it is done.
export const whatHappens = {
  kill(pool, id, kills) {
    const { leads = 0, inSync = 0 } = pool.counts().byBroker.get(id) ?? {};
    const sentences = [kills === "pod"
      ? `The pod of broker ${id} is deleted. Its broker hands its leaderships over and stops, then the operator makes the pod again with the same volume.`
      : `The process of broker ${id} gets SIGKILL: it has no time to do anything. Local mode starts it again.`];
    sentences.push(`It leads ${count(leads, "partition")}, for which other replicas are elected, and leaves ${count(inSync, "ISR")}.`);
    let below = 0;
    let offline = 0;
    for (const topic of pool.topics.values()) {
      if (topic.head.retained) continue;
      for (const { isr, eligible, minIsr } of topic.partitions.values()) {
        if (!isr.includes(id)) continue;
        if (isr.length === 1 && !eligible.length) offline += 1;
        else if (isr.length - 1 < minIsr) below += 1;
      }
    }
    if (offline) sentences.push(`${count(offline, "partition")} will have no leader until it is back: no reads or writes.`);
    if (below) sentences.push(`${count(below, "partition")} will be below min ISR until it is back: acks=all writes are rejected.`);
    if (!offline && !below) sentences.push("All partitions keep a leader and accept acks=all writes.");
    return sentences;
  },
  drain(pool, id) {
    const { replicas = 0 } = pool.counts().byBroker.get(id) ?? {};
    return [
      `Broker ${id} is added to spec.drain of BrokerPool ${pool.name.split("/").at(-1)}.`,
      `Its ${count(replicas, "replica")} and retained data are copied to other brokers, then removed from it. That may take long and uses disk and network.`,
      `Nothing is unavailable meanwhile. To end it: tidemark drain ${id} --undo`,
    ];
  },
  elect(topic, partition) {
    const [preferred] = partition.replicas;
    const from = partition.leader === NONE ? "which has no leader" : `instead of broker ${partition.leader}`;
    const sentences = [`Broker ${preferred} becomes the leader of ${topic.name}-${partition.number} ${from}.`];
    if (partition.isr.includes(preferred)) sentences.push("Clients go to the new leader by themselves. No record is lost.");
    else sentences.push(`Broker ${preferred} is not in sync now, so this will be rejected.`);
    return sentences;
  },
};

export const FILTERS = {
  all: { label: "All", has: () => true },
  unwell: { label: "Not well", has: (klass) => CLASSES[klass].rank >= CLASSES.under.rank },
  offline: { label: "No leader", has: (klass) => klass === "offline" || klass === "missing" },
  belowmin: { label: "Below min ISR", has: (klass) => klass === "belowmin" },
  atmin: { label: "At min ISR", has: (klass) => klass === "atmin" },
  moving: { label: "Moving", has: (klass) => klass === "moving" },
  retained: { label: "Retained", has: (klass) => klass === "retained" },
};

// The lines of the table: a topic's line, then its partitions where they are shown.
export function linesOf(pool, { search = "", filter = "all", broker = NONE, open = new Map() }) {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const { has: wanted } = FILTERS[filter] ?? FILTERS.all;
  const few = pool.counts().partitions <= FEW;
  const topics = [];
  for (const topic of pool.topics.values()) {
    const name = topic.name.toLowerCase();
    const exact = words.map((word) => /^(.*)-(\d+)$/.exec(word)).find(Boolean);
    const isNamed = words.every((word) => name.includes(word));
    const number = !isNamed && exact && name.includes(exact[1]) ? Number(exact[2]) : null;
    if (!isNamed && number === null) continue;
    const { worst, list, total, counts } = topic.summarize();
    const shown = list.filter(
      ({ partition, klass }) =>
        wanted(klass) &&
        (number === null || partition.number === number) &&
        (broker === NONE || partition.replicas.includes(broker)),
    );
    const isEmpty = !list.length && filter === "all" && broker === NONE;
    const isAbsent = counts.missing && (filter === "all" || wanted("missing"));
    if (!shown.length && !isEmpty && !isAbsent) continue;
    topics.push({ topic, worst, shown, total, counts, isOne: number !== null });
  }
  topics.sort(
    (a, b) =>
      CLASSES[b.worst].rank - CLASSES[a.worst].rank ||
      isInternal(a.topic) - isInternal(b.topic) ||
      (a.topic.name < b.topic.name ? -1 : a.topic.name > b.topic.name ? 1 : 0),
  );
  const lines = [];
  for (const { topic, worst, shown, total, counts, isOne } of topics) {
    const isUnwell = CLASSES[worst].rank >= CLASSES.under.rank;
    const isOpen = open.get(topic.id) ?? ((few && !isInternal(topic)) || isOne || filter !== "all" || isUnwell);
    lines.push({ topic, worst, counts, total, isOpen, shown: shown.length });
    if (!isOpen) continue;
    // A large topic that is not well shows what is not well, until somebody opens it.
    const isCut = isUnwell && !few && !open.get(topic.id) && filter === "all" && !isOne;
    for (const { partition, klass } of shown) {
      if (isCut && CLASSES[klass].rank < CLASSES.under.rank) break;
      lines.push({ topic, partition, klass });
    }
  }
  return lines;
}

const isInternal = (topic) => topic.name.startsWith("__");

export function count(number, what) {
  return `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;
}

// 950, 12.3k, 4.1M.
export function short(number) {
  if (number < 1000) return `${Math.round(number)}`;
  const [unit, divisor] = number < 999_500 ? ["k", 1e3] : number < 999_500_000 ? ["M", 1e6] : ["G", 1e9];
  const value = number / divisor;
  return `${value < 99.95 ? value.toFixed(1) : Math.round(value)}${unit}`;
}

export function bytes(number) {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let value = Math.max(0, number);
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) [value, unit] = [value / 1000, unit + 1];
  return `${unit && value < 99.95 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

// What a broker's card and page say of its disk: [words, share that is used, state].
export function diskOf(pool, id) {
  const found = pool.disk[id];
  if (!found) return null;
  const [free, size, state] = found;
  const words = { NearlyFull: "nearly full", Full: "full" }[state];
  return {
    state,
    used: Math.min(1, Math.max(0, 1 - free / size)),
    short: words ? `${words}: ${bytes(free)} free` : `${bytes(free)} free`,
    long: `Disk ${words ? `${words}: ` : ""}${bytes(free)} free of ${bytes(size)} (${Math.floor((100 * free) / size)} %)`,
  };
}

// How a replica catches up: for its cell, and in words.
export function progressTexts({ lag, rate, toGoMs }) {
  const speed = rate === null ? "" : `${short(rate)}/s`;
  const toGo = toGoMs === null ? "" : duration(toGoMs);
  const words = [`${count(lag, "record")} behind`];
  if (speed) words.push(`copies ${Math.round(rate).toLocaleString("en")}/s`);
  if (toGo) words.push(`${toGo} to go`);
  else if (speed && lag) words.push("does not come closer");
  return { lag: short(lag), speed, toGo, words: words.join(", ") };
}

export function duration(ms) {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 120_000) return `${Math.round(ms / 1000)} s`;
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`;
  return `${Math.round(ms / 3_600_000)} h`;
}

// As YAML, so that it can be applied again.
export function manifestOf(topic) {
  const { head } = topic;
  const lines = [
    "apiVersion: tidemark.dev/v1alpha1",
    "kind: Topic",
    `metadata: {name: ${text(head.object)}}`,
    "spec:",
    ...(head.topic === head.object ? [] : [`  topicName: ${text(head.topic)}`]),
    `  partitions: ${head.partitions}`,
    `  replicationFactor: ${head.replicationFactor}`,
    ...(head.commitRule && head.commitRule !== "MinInsync" ? [`  commitRule: ${head.commitRule}`] : []),
    ...(head.flush && head.flush !== "Os" ? [`  flush: ${head.flush}`] : []),
    `  deletionPolicy: ${head.deletionPolicy}`,
  ];
  const config = Object.entries(head.config ?? {});
  if (config.length) lines.push("  config:", ...config.map(([k, v]) => `    ${k}: ${JSON.stringify(v)}`));
  return lines.join("\n");
}

const text = (value) => (/^[a-z0-9][a-z0-9.-]*$/i.test(value) && /[a-z]/i.test(value) ? value : JSON.stringify(value));
