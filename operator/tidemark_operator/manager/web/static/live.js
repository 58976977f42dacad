// Offsets and lag of a topic's replicas, and consumer groups: read while they are open, each second
// or slower, with small charts of the last two minutes.

import { asSentence, clock, el, nameOf, svg } from "./dom.js";
import { count, duration } from "./model.js";

const KEPT = 120;
const EVERY_MS = 1000;
const GROUPS_EVERY_MS = 3000;
export const AT_ONCE = 16; // partitions, as the operator reads them

const whole = (number) => (number === null || number === undefined ? "–" : number.toLocaleString("en"));

export class LiveOffsets {
  constructor(root) {
    this.root = root;
    this.key = "";
    this.timer = null;
    this.past = new Map(); // partition/broker: [{atMs, end, lag}]
  }

  show(pool, topic) {
    const key = JSON.stringify([pool.name, topic.id]);
    if (this.key === key) return;
    this.stop();
    this.key = key;
    this.pool = pool.name;
    this.topic = topic;
    this.first = 0;
    this.root.replaceChildren(el("p", { class: "quiet" }, "Reading offsets from the brokers."));
    this.read(key);
    this.readGroups(key);
  }

  stop() {
    this.key = "";
    clearTimeout(this.timer);
    clearTimeout(this.groupTimer);
    this.past.clear();
    this.groups = null;
    this.root.replaceChildren();
  }

  async read(key) {
    const query = new URLSearchParams({ pool: this.pool, topic: this.topic.name, first: this.first });
    try {
      const answer = await (await fetch(`/v1/isr/topic?${query}`)).json();
      if (this.key !== key) return;
      if (answer.partitions) this.draw(answer.partitions);
      else this.root.replaceChildren(el("p", { class: "quiet" }, asSentence(answer.problem)));
    } catch {
      if (this.key !== key) return;
    }
    this.timer = setTimeout(() => this.read(key), document.hidden ? 5 * EVERY_MS : EVERY_MS);
  }

  async readGroups(key) {
    const query = new URLSearchParams({ pool: this.pool, topic: this.topic.name });
    try {
      const answer = await (await fetch(`/v1/isr/groups?${query}`)).json();
      if (this.key !== key) return;
      this.groups = (answer.groups ?? []).filter((group) => group.offsets.length);
    } catch {
      if (this.key !== key) return;
    }
    this.groupTimer = setTimeout(() => this.readGroups(key), GROUPS_EVERY_MS);
  }

  draw(partitions) {
    const now = Date.now();
    const rows = partitions.flatMap((partition) => this.rowsOf(partition, now));
    const total = this.topic.head.partitions;
    const parts = [
      el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Offsets of the replicas" },
        el("table", { class: "offsets" },
          el("thead", {}, el("tr", {}, ...head("Partition", "Replica", "Log start#", "Watermark#", "Log end#", "Rate#", "Lag#", "Last 2 min"))),
          el("tbody", {}, ...rows))),
    ];
    if (total > AT_ONCE) parts.push(this.pager(total));
    if (this.groups?.length) parts.push(groupTable(this.groups, "Consumer groups of this topic"));
    const focus = document.activeElement?.dataset?.page;
    const scroll = this.root.querySelector(".scroll")?.scrollTop ?? 0;
    const hadFocus = this.root.querySelector(".scroll") === document.activeElement;
    this.root.replaceChildren(...parts);
    const box = this.root.querySelector(".scroll");
    box.scrollTop = scroll;
    if (hadFocus) box.focus({ preventScroll: true });
    if (focus) this.root.querySelector(`[data-page="${focus}"]`)?.focus();
  }

  rowsOf({ partition, replicas }, now) {
    const state = this.topic.partitions.get(partition);
    const leader = replicas.find((replica) => replica.broker === state?.leader);
    const ids = state?.replicas ?? replicas.map((replica) => replica.broker);
    return ids.map((id, index) => {
      const found = replicas.find((replica) => replica.broker === id);
      const lag = leader && found ? Math.max(0, leader.end - found.end) : null;
      const past = this.remember(`${partition}/${id}`, now, found?.end ?? null, lag);
      return el("tr", {},
        index ? el("td", {}) : el("th", { scope: "row" }, `${partition}`),
        el("td", {}, `broker ${id}${id === state?.leader ? " (leader)" : ""}`),
        ...[found?.start, found?.watermark, found?.end].map((value) => el("td", { class: "number" }, whole(value))),
        el("td", { class: "number" }, rateText(past)),
        el("td", { class: "number" }, id === state?.leader ? "" : lagText(lag, past)),
        el("td", {}, chart(past, now, id === state?.leader)));
    });
  }

  remember(key, atMs, end, lag) {
    const past = this.past.get(key) ?? [];
    past.push({ atMs, end, lag });
    if (past.length > KEPT) past.shift();
    this.past.set(key, past);
    return past;
  }

  pager(total) {
    const step = (by) => () => {
      this.first = Math.max(0, Math.min(total - 1, this.first + by));
      clearTimeout(this.timer);
      this.read(this.key);
    };
    return el("p", { class: "pager" },
      el("button", { type: "button", class: "plain", "data-page": "before", disabled: this.first === 0, onclick: step(-AT_ONCE) }, "◂ before"),
      ` partitions ${this.first} to ${Math.min(total, this.first + AT_ONCE) - 1} of ${total.toLocaleString("en")} `,
      el("button", { type: "button", class: "plain", "data-page": "next", disabled: this.first + AT_ONCE >= total, onclick: step(AT_ONCE) }, "next ▸"));
  }
}

// Column heads; a # ends those of numbers.
const head = (...texts) =>
  texts.map((text) => el("th", { scope: "col", class: text.endsWith("#") ? "number" : null }, text.replace("#", "")));

// Records a second, over the last ten seconds.
function rateOf(past, field) {
  const last = past.at(-1);
  const first = past.find((each) => each.atMs >= last.atMs - 10_000 && each[field] !== null);
  if (!first || last[field] === null || last.atMs - first.atMs < 1500) return null;
  return ((last[field] - first[field]) * 1000) / (last.atMs - first.atMs);
}

function rateText(past) {
  const rate = rateOf(past, "end");
  return rate === null ? "–" : `${Math.round(rate).toLocaleString("en")}/s`;
}

function lagText(lag, past) {
  if (lag === null) return "not read";
  if (!lag) return "0";
  const rate = rateOf(past, "lag");
  if (rate === null || rate >= 0) return whole(lag);
  return `${whole(lag)}, ${duration((lag / -rate) * 1000)} to go`;
}

function chart(past, now, isLeader) {
  const field = isLeader ? "end" : "lag";
  const points = past.filter((each) => each[field] !== null);
  const picture = svg("svg", { class: "spark", viewBox: "0 0 120 20", preserveAspectRatio: "none", role: "img",
    "aria-label": isLeader ? "log end offset" : `lag, highest ${Math.max(0, ...points.map((p) => p.lag))}` });
  if (points.length < 2) return picture;
  const low = isLeader ? points[0].end : 0;
  const high = Math.max(low + 1, ...points.map((each) => each[field]));
  const line = points.map((each) => `${(120 - (now - each.atMs) / 1000).toFixed(1)},${(18.5 - (17 * (each[field] - low)) / (high - low)).toFixed(1)}`);
  picture.append(svg("polyline", { points: line.join(" "), class: isLeader ? "end" : "lag" }));
  return picture;
}

// Why a partition is as it is: read again when it changes.
export class Why {
  constructor(root, actions) {
    this.root = root;
    this.actions = actions;
    this.stamp = "";
  }

  hide() {
    this.root.hidden = true;
    this.stamp = "";
  }

  async show(pool, topic, partition) {
    const states = partition.replicas.map((id) => pool.brokers.get(id)?.state);
    const stamp = JSON.stringify([pool.name, topic.id, partition.row, states, this.actions.areOn]);
    if (stamp === this.stamp) return;
    this.stamp = stamp;
    const query = new URLSearchParams({ pool: pool.name, topic: topic.name, partition: partition.number });
    try {
      const answer = await (await fetch(`/v1/isr/why?${query}`)).json();
      if (this.stamp !== stamp) return;
      this.root.hidden = false;
      this.root.replaceChildren(
        el("h3", {}, nameOf(topic.name), `-${partition.number}`),
        el("dl", {}, ...(answer.answers ?? [{ question: answer.problem, answer: "" }]).flatMap((each) => [
          el("dt", {}, each.question),
          el("dd", { dir: "auto" }, asSentence(each.answer, `${topic.name}-${partition.number}`), each.atMs ? el("span", { class: "quiet" }, ` (${clock(each.atMs)})`) : null),
        ])),
        el("p", { class: "acts" }, ...this.actions.ofPartition(pool, topic, partition)),
      );
    } catch {
      this.stamp = ""; // the connection is lost: asked again with the next change
    }
  }
}

export function groupTable(groups, title) {
  const rows = groups.map((group) => {
    const known = group.offsets.filter(([, , , end]) => end !== null);
    const lag = known.reduce((sum, [, , offset, end]) => sum + Math.max(0, end - offset), 0);
    const topics = new Set(group.offsets.map(([topic]) => topic));
    const rest = group.offsets.length - known.length;
    return el("tr", {},
      el("th", { scope: "row" }, nameOf(group.group)), el("td", {}, group.state),
      el("td", { class: "number" }, whole(group.members)),
      el("td", { class: "number" }, group.offsets.length ? whole(lag) + (rest ? ` (of ${rest} more not read)` : "") : "–"),
      el("td", {}, topics.size === 1 ? nameOf([...topics][0]) : count(topics.size, "topic"), `, ${count(group.offsets.length, "partition")}`));
  });
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": title },
    el("table", { class: "offsets" }, el("caption", {}, title),
      el("thead", {}, el("tr", {}, ...head("Group", "State", "Members#", "Lag#", "Committed"))),
      el("tbody", {}, ...rows)));
}

export class GroupsPage {
  constructor(root) {
    this.root = root;
    this.pool = "";
  }

  show(pool) {
    this.root.hidden = false;
    if (this.pool === pool.name) return;
    this.pool = pool.name;
    this.root.replaceChildren(el("p", { class: "empty" }, "Reading consumer groups from the brokers."));
    this.read(pool.name);
  }

  hide() {
    this.root.hidden = true;
    this.pool = "";
    clearTimeout(this.timer);
  }

  async read(pool) {
    try {
      const answer = await (await fetch(`/v1/isr/groups?${new URLSearchParams({ pool })}`)).json();
      if (this.pool !== pool) return;
      const { groups } = answer;
      if (!groups) this.root.replaceChildren(el("p", { class: "empty" }, asSentence(answer.problem)));
      else if (!groups.length) this.root.replaceChildren(el("p", { class: "empty" }, "No consumer groups yet."));
      else {
        groups.sort((a, b) => (a.group < b.group ? -1 : 1));
        this.root.replaceChildren(groupTable(groups, "Consumer groups"));
      }
    } catch {
      if (this.pool !== pool) return;
    }
    this.timer = setTimeout(() => this.read(pool), GROUPS_EVERY_MS);
  }
}
