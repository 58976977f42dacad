// Connect the parts: the address in the URL, the stream, and what is shown.

import { Actions } from "./actions.js";
import { byId, clock, el, setText } from "./dom.js";
import { CELLS, CLASSES, FILTERS, NONE, Pool, count, diskOf, duration, healthOf, linesOf, short } from "./model.js";
import { GroupsPage } from "./live.js";
import { Stream } from "./stream.js";
import { Table, replica } from "./table.js";
import { Timeline } from "./timeline.js";
import { Subject } from "./topic.js";

const SIGNS = { good: "✓", warn: "!", bad: "✕", wait: "…" };
const LINKS = { opening: "Connecting", live: "Live", lost: "Connection lost", past: "Paused in the past" };
const BROKER_MARKS = { Active: "●", Starting: "◌", Draining: "◐", Fenced: "▨", Gone: "✕" };

const view = { pool: "", q: "", show: "all", broker: NONE, topic: "", partition: NONE, page: "" };
const open = new Map(); // by topic id, as somebody chose
let stream = null;
let atMs = null; // null: live
let link = "opening";
let isDue = false;
let isTimelineDue = false;

const table = new Table(byId("table"), {
  open(topic, isOpen) {
    open.set(topic.id, isOpen);
    draw();
    table.focus();
  },
  topic: (topic, partition) => go({ topic: topic.name, partition: partition?.number ?? NONE, page: "" }),
});
const timeline = new Timeline(byId("scrub"), byId("events"), {
  at(ms) {
    atMs = ms;
    later();
  },
  topic: (topic, partition) => go({ topic, partition, page: "" }),
});
const groupsPage = new GroupsPage(byId("groupspage"));
const actions = new Actions(byId("confirm"));
const subject = new Subject(byId("subject"), byId("topicmore"), actions, { close: () => go({ topic: "", broker: NONE }) });

// The URL holds what is shown.

function readUrl() {
  const query = new URLSearchParams(location.search);
  view.pool = query.get("pool") ?? "";
  view.q = query.get("q") ?? "";
  view.show = query.get("show") in FILTERS ? query.get("show") : "all";
  view.broker = query.has("broker") ? Number(query.get("broker")) : NONE;
  view.topic = query.get("topic") ?? "";
  view.partition = query.has("partition") ? Number(query.get("partition")) : NONE;
  view.page = query.get("page") === "groups" ? "groups" : "";
}

function go(change, { replace = false } = {}) {
  const before = { ...view };
  Object.assign(view, change);
  const query = new URLSearchParams();
  if (view.pool) query.set("pool", view.pool);
  if (view.q) query.set("q", view.q);
  if (view.show !== "all") query.set("show", view.show);
  if (view.broker !== NONE) query.set("broker", view.broker);
  if (view.topic) query.set("topic", view.topic);
  else view.partition = NONE;
  if (view.partition !== NONE) query.set("partition", view.partition);
  if (view.page) query.set("page", view.page);
  history[replace ? "replaceState" : "pushState"](null, "", `?${query}`);
  if (!("partition" in change) || change.topic !== before.topic) byId("table").scrollTop = 0;
  draw();
}

addEventListener("popstate", () => {
  const pool = view.pool;
  readUrl();
  if (view.pool !== pool) follow();
  draw();
});

// The stream.

async function findPools() {
  let pools = [];
  try {
    const answer = await (await fetch("/v1/pools")).json();
    pools = answer.pools ?? [];
    actions.kills = answer.actions?.kills ?? "";
    later();
  } catch {
    // The stream says that the operator does not answer.
  }
  const select = byId("pools");
  const names = pools.includes(view.pool) ? pools : [view.pool, ...pools];
  select.replaceChildren(...names.map((name) => el("option", { value: name }, name)));
  select.value = view.pool;
}

function follow() {
  stream?.close();
  setLink("opening", "");
  stream = new Stream(view.pool, {
    pool(pool) {
      if (!view.pool) {
        go({ pool: pool.name }, { replace: true });
        findPools();
      }
      draw();
    },
    change: () => later(),
    beat(beat) {
      timeline.skewMs = beat.nowMs - Date.now();
      if (atMs !== null) timeline.tell();
      else if (stream.pool) {
        drawHealth(stream.pool);
        drawBrokers(stream.pool);
        if (view.broker !== NONE && !view.topic) subject.showBroker(stream.pool, view.broker, true);
      }
    },
    progress() {
      if (atMs === null) table.draw(); // only rows in view
    },
    state: setLink,
  });
}

function setLink(state, sentence) {
  link = state;
  notice(state === "lost" ? `${sentence} Trying again${stream?.pool ? "; what is shown may be old" : ""}.` : "");
  document.body.classList.toggle("stale", state === "lost");
  drawLink();
}

function drawLink() {
  const shown = link === "live" && atMs !== null ? "past" : link;
  byId("link").dataset.state = shown;
  setText(byId("link").querySelector("b"), LINKS[shown]);
}

function notice(sentence) {
  byId("notice").hidden = !sentence;
  setText(byId("notice"), sentence);
}

// What is shown. At most once a frame.

function later() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    draw();
  });
}

function shownPool() {
  const now = stream?.pool;
  if (!now) return null;
  return atMs === null ? now : now.at(atMs);
}

function draw() {
  const pool = shownPool();
  drawLink();
  drawChips(pool);
  if (byId("search").value !== view.q && document.activeElement !== byId("search")) byId("search").value = view.q;
  if (!pool) return;
  drawHealth(pool);
  drawBrokers(pool);
  const topic = view.topic ? pool.topicNamed(view.topic) : null;
  if (view.topic) subject.showTopic(pool, view.topic, view.partition, atMs === null);
  else if (view.broker !== NONE) subject.showBroker(pool, view.broker, atMs === null);
  else subject.hide();
  const isGroups = view.page === "groups";
  if (isGroups) groupsPage.show(pool);
  else groupsPage.hide();
  document.body.classList.toggle("onlygroups", isGroups);
  document.body.classList.toggle("onlytopic", Boolean(view.topic));
  for (const tab of byId("tabs").children) {
    if ((tab.dataset.page ?? "") === view.page) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
  drawTable(pool, topic);
  drawTimelineLater();
}

// After the state has been drawn: the list of events takes longer than all the rest.
function drawTimelineLater() {
  if (isTimelineDue) return;
  isTimelineDue = true;
  setTimeout(() => {
    isTimelineDue = false;
    if (stream.pool) timeline.show(stream.pool.events, eventFilter());
  });
}

function eventFilter() {
  if (view.topic) return (event) => event.topic === view.topic;
  if (view.broker !== NONE) return (event) => event.broker === view.broker || event.brokers?.includes(view.broker);
  return () => true;
}

function drawHealth(pool) {
  const [level, sentence] = healthOf(pool);
  const health = byId("health");
  health.dataset.level = atMs === null ? level : "past";
  setText(health.querySelector(".sign"), SIGNS[level]);
  const when = atMs === null ? "" : `At ${clock(atMs)}: `;
  setText(health.querySelector("p"), when + sentence);
  document.title = `${SIGNS[level]} ${pool.name} · Tidemark`;
}

function drawTable(pool, topic) {
  const of = view.topic ? onlyOf(pool, topic) : pool;
  const choice = { search: view.topic ? "" : view.q, filter: view.show, broker: view.broker, open };
  let lines = linesOf(of, choice);
  if (view.topic) lines = linesOf(of, { ...choice, open: new Map(topic ? [[topic.id, true]] : []) }).filter((line) => line.partition);
  byId("table").style.setProperty("--lines", Math.min(lines.length, 8));
  table.chosen = view.partition;
  table.progressOf = (of_, partition, id) => pool.progressOf(of_, partition, id);
  table.show(lines, pool.brokers);
  const heads = lines.filter((line) => !line.partition);
  const partitions = heads.reduce((sum, line) => sum + line.shown, 0);
  setText(byId("shown"), `${count(heads.length, "topic")}, ${count(partitions, "partition")}`);
  const empty = byId("empty");
  empty.hidden = lines.length > 0;
  const isAll = view.show === "all" && !view.q && view.broker === NONE;
  setText(empty, isAll ? "No topics yet. Create one: tidemark topics create orders" : view.show === "unwell" && !view.q ? "Nothing needs attention: every partition is in sync." : "No partition matches. Clear the search or the filter.");
  byId("table").hidden = !lines.length;
}

function onlyOf(pool, topic) {
  const one = new Pool(pool.name);
  one.brokers = pool.brokers;
  if (topic) one.topics.set(topic.id, topic);
  return one;
}

function drawBrokers(pool) {
  if (!pool) return;
  const { byBroker } = pool.counts();
  const root = byId("brokers");
  const brokers = [...pool.brokers.values()].filter((each) => each.state !== "Gone").sort((a, b) => a.id - b.id);
  const known = new Map([...root.children].map((card) => [card.dataset.id, card]));
  const cards = brokers.map((broker) => {
    const card = known.get(String(broker.id)) ?? brokerCard(broker.id);
    const has = byBroker.get(broker.id) ?? { leads: 0, inSync: 0, replicas: 0 };
    card.dataset.state = broker.state;
    card.setAttribute("aria-pressed", String(view.broker === broker.id));
    const [mark, , state, facts, heard, disk] = card.children;
    setText(mark, BROKER_MARKS[broker.state] ?? "?");
    setText(state, broker.restarting && broker.state !== "Active" ? `${broker.state}, restarting` : broker.state);
    const lag = pool.lagOf(broker.id);
    setText(facts, `leads ${has.leads} · in sync ${has.inSync}/${has.replicas}${lag ? ` · lag ${short(lag)}` : ""}`);
    setText(heard, heardText(broker, pool.silence[broker.id]));
    drawDisk(disk, diskOf(pool, broker.id));
    return card;
  });
  if (cards.length !== root.children.length || cards.some((card, index) => root.children[index] !== card)) {
    root.replaceChildren(...cards);
  }
  root.classList.toggle("many", cards.length > 12);
}

function brokerCard(id) {
  return el("button", { type: "button", class: "broker", "data-id": id, title: `Show only partitions with a replica on broker ${id}`,
    onclick: () => go({ broker: view.broker === id ? NONE : id, topic: "", page: "" }) },
    el("i", { "aria-hidden": true }), el("b", {}, `Broker ${id}`), el("span", { class: "bstate" }),
    el("span", { class: "bfacts" }), el("span", { class: "quiet bheard" }),
    el("span", { class: "bdisk" }, el("i", { class: "gauge", "aria-hidden": true }, el("i")), el("span", {}, el("span", { class: "noun" }, "disk "), el("span"))));
}

function drawDisk(element, disk) {
  const [gauge, words] = element.children;
  element.dataset.disk = disk?.state ?? "";
  gauge.hidden = !disk;
  gauge.firstChild.style.width = `${Math.round(100 * (disk?.used ?? 0))}%`;
  setText(words.lastChild, disk ? disk.short : "not reported");
}

function heardText(broker, silenceMs) {
  const rack = broker.rack ? `${broker.rack} · ` : "";
  if (silenceMs === undefined) return rack + broker.address;
  return rack + (silenceMs === null ? "no session" : `heard ${duration(silenceMs)} ago`);
}

function drawChips(pool) {
  const root = byId("chips");
  if (!root.children.length) {
    for (const [name, { label }] of Object.entries(FILTERS)) {
      root.append(el("button", { type: "button", class: "chip", "data-show": name, onclick: () => go({ show: name }) },
        el("span", {}, label), el("b", {})));
    }
  }
  const classes = pool?.counts().classes ?? {};
  for (const chip of root.children) {
    const { has } = FILTERS[chip.dataset.show];
    const number = Object.entries(classes).reduce((sum, [klass, many]) => sum + (has(klass) ? many : 0), 0);
    setText(chip.lastChild, number.toLocaleString("en"));
    chip.setAttribute("aria-pressed", String(view.show === chip.dataset.show));
    chip.hidden = ["moving", "retained", "offline", "belowmin", "atmin"].includes(chip.dataset.show) && !number && view.show !== chip.dataset.show;
  }
}

// Controls.

byId("tabs").addEventListener("click", (event) => {
  const tab = event.target.closest("a");
  if (!tab) return;
  event.preventDefault();
  go({ page: tab.dataset.page ?? "", topic: "" });
});

byId("pools").addEventListener("change", (event) => {
  go({ pool: event.target.value, topic: "", broker: NONE });
  follow();
});
byId("search").addEventListener("input", (event) => go({ q: event.target.value }, { replace: true }));
byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("home").addEventListener("click", (event) => {
  event.preventDefault();
  go({ q: "", show: "all", broker: NONE, topic: "", page: "" });
});

const THEMES = ["auto", "dark", "light"];
function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  setText(byId("theme"), `Theme: ${theme}`);
  try {
    localStorage.setItem("tidemark-theme", theme);
  } catch {
    // Without storage it holds for this page.
  }
}
byId("theme").addEventListener("click", () => {
  setTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length]);
});
try {
  setTheme(localStorage.getItem("tidemark-theme") ?? "auto");
} catch {
  setTheme("auto");
}

const KEYS = [
  ["/", "search"],
  ["j k, arrows, Page, Home, End", "move in the table"],
  ["→ ←, Space", "show or hide a topic's partitions"],
  ["Enter", "open the topic, and why a partition is as it is"],
  ["u", "show what is not well"],
  ["g", "consumer groups"],
  ["[ ]", "event before, event after"],
  ["l", "back to live"],
  ["Esc", "close, clear the filter"],
  ["?", "this list"],
];
byId("help").append(
  el("h2", { id: "helptitle" }, "Keys"),
  el("dl", { class: "keys" }, ...KEYS.flatMap(([key, what]) => [el("dt", {}, key), el("dd", {}, what)])),
  el("form", { method: "dialog" }, el("button", { class: "plain" }, "Close")),
);
byId("keys").addEventListener("click", () => byId("help").showModal());

addEventListener("keydown", (event) => {
  const isTyping = event.target.matches("input[type=search], select");
  if (event.ctrlKey || event.metaKey || event.altKey || byId("help").open || byId("confirm").open) return;
  if (event.key === "Escape") escape(isTyping);
  else if (isTyping) {
    if (event.key === "Enter" || event.key === "ArrowDown") table.move(0);
    else return;
  } else if (event.key === "/") byId("search").focus();
  else if (event.key === "?") byId("help").showModal();
  else if (event.key === "u") go({ show: view.show === "unwell" ? "all" : "unwell" });
  else if (event.key === "g") go({ page: view.page ? "" : "groups", topic: "" });
  else if (event.key === "[") timeline.step(-1);
  else if (event.key === "]") timeline.step(1);
  else if (event.key === "l") timeline.live();
  else if ((event.key === "j" || event.key === "k") && !byId("table").contains(event.target)) table.move(table.active);
  else return;
  event.preventDefault();
});

function escape(isTyping) {
  if (isTyping && view.q) {
    byId("search").value = "";
    go({ q: "" }, { replace: true });
  } else if (isTyping) table.focus();
  else if (view.topic || view.page) go({ topic: "", page: "" });
  else if (view.broker !== NONE || view.show !== "all" || view.q) go({ broker: NONE, show: "all", q: "" });
  else if (atMs !== null) timeline.live();
}

byId("legend").append(
  ...Object.entries(CELLS).flatMap(([letter, label]) => [el("dt", {}, replica(letter, "")), el("dd", {}, label)]),
);

readUrl();
draw();
follow(); // without a pool in the address, the operator chooses the first
if (view.pool) findPools();

export { CLASSES, stream, view };
