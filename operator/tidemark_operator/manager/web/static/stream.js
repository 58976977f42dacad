// Follow one pool: a snapshot, then its changes. Connects again without end, and says its state.

import { asSentence } from "./dom.js";
import { Pool } from "./model.js";

const SILENT_MS = 4000; // a beat comes each second
const FIRST_PAUSE_MS = 250;
const LAST_PAUSE_MS = 3000;
// A browser has six connections to a server, and each open tab takes one.
const HIDDEN_MS = 60_000;

export class Stream {
  // on: {pool(pool), change(change, pool), beat(beat), progress(), state(name, sentence)}
  constructor(name, on) {
    this.name = name;
    this.on = on;
    this.pool = null;
    this.pauseMs = FIRST_PAUSE_MS;
    this.isClosed = false;
    this.whenSeen = () => this.seen();
    document.addEventListener("visibilitychange", this.whenSeen);
    this.open();
  }

  close() {
    this.isClosed = true;
    document.removeEventListener("visibilitychange", this.whenSeen);
    this.pause();
  }

  pause() {
    clearTimeout(this.watch);
    clearTimeout(this.again);
    clearTimeout(this.hidden);
    this.source?.close();
    this.source = null;
  }

  // A tab that has been hidden for a while gives its connection back, and catches up when seen.
  seen() {
    clearTimeout(this.hidden);
    if (document.hidden) this.hidden = setTimeout(() => this.pause(), HIDDEN_MS);
    else if (!this.source) {
      this.pause();
      this.open();
    }
  }

  open() {
    const version = this.pool?.version ?? "";
    const query = new URLSearchParams({ pool: this.name, version });
    const source = (this.source = new EventSource(`/v1/isr/stream?${query}`));
    let next = null;
    const listen = (event, act) =>
      source.addEventListener(event, (message) => {
        if (this.source !== source) return;
        this.heard();
        act(JSON.parse(message.data));
      });
    listen("begin", (part) => {
      this.name = part.pool;
      next = new Pool(this.name);
      next.begin(part);
    });
    listen("part", (part) => next?.apply(part));
    listen("end", ({ version: newest, events }) => {
      next.version = newest;
      next.addEvents(events);
      this.pool = next;
      this.readEarlier(next);
      this.connected();
      this.on.pool(next);
    });
    listen("resumed", () => this.connected());
    listen("change", (change) => {
      if (!this.pool) return;
      this.pool.apply(change);
      this.on.change(change, this.pool);
    });
    listen("beat", (beat) => {
      if (this.pool) [this.pool.silence, this.pool.disk] = [beat.silenceMs, beat.disk ?? {}];
      this.on.beat(beat);
    });
    listen("progress", ({ replicas }) => {
      if (!this.pool || (!replicas.length && !this.pool.progress.size)) return;
      this.pool.setProgress(replicas);
      this.on.progress();
    });
    source.onerror = () => this.lost(source, "The connection to the operator is lost.");
    this.heard();
  }

  // Events before those of the snapshot, for the time line. Without them it is only shorter.
  async readEarlier(pool) {
    const newest = pool.events[0]?.number ?? 1;
    const earlier = [];
    let after = 0;
    try {
      while (after < newest - 1 && this.pool === pool) {
        const query = new URLSearchParams({ pool: this.name, after });
        const { events } = await (await fetch(`/v1/isr/events?${query}`)).json();
        if (!events?.length) break;
        earlier.push(...events);
        after = events.at(-1).number;
      }
    } catch {
      return;
    }
    pool.addEarlier(earlier);
    this.on.change(null, pool);
  }

  connected() {
    this.pauseMs = FIRST_PAUSE_MS;
    this.on.state("live", "");
  }

  heard() {
    clearTimeout(this.watch);
    const { source } = this;
    this.watch = setTimeout(
      () => this.lost(source, "The operator has not been heard for some seconds."),
      SILENT_MS,
    );
  }

  async lost(source, sentence) {
    if (this.isClosed || this.source !== source) return;
    this.source = null;
    source.close();
    clearTimeout(this.watch);
    this.on.state("lost", sentence);
    const pauseMs = this.pauseMs;
    this.pauseMs = Math.min(LAST_PAUSE_MS, this.pauseMs * 2);
    clearTimeout(this.again);
    this.again = setTimeout(() => this.open(), pauseMs);
    const reason = await reasonOf(this.name);
    if (reason && !this.isClosed && this.source?.readyState !== 1) this.on.state("lost", reason);
  }
}

// What the operator says instead of a stream; "" if it does not answer.
async function reasonOf(name) {
  try {
    const response = await fetch("/v1/pools", { signal: AbortSignal.timeout(2000) });
    const answer = await response.json();
    if (answer.problem) return asSentence(answer.problem);
    if (!answer.pools.length) return "No broker has registered yet.";
    return !name || answer.pools.includes(name) ? "" : `Pool ${name}: no broker of it has registered.`;
  } catch {
    return "";
  }
}
