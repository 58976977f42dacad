// The table of topics and partitions. Only rows in view are elements, however many there are.

import { el, nameOf } from "./dom.js";
import { CELLS, CLASSES, NONE, count, progressTexts } from "./model.js";

const AROUND = 6; // rows above and below what is in view

export class Table {
  // on: {open(topic, isOpen), topic(topic, partition or undefined)}
  constructor(root, on) {
    this.root = root;
    this.on = on;
    this.tall = root.querySelector(".tall");
    this.rows = root.querySelector(".rows");
    this.lines = [];
    this.made = new Map(); // key: {element, stamp, index}
    this.active = 0;
    this.brokers = new Map();
    this.progressOf = () => undefined; // of a replica that catches up: (topic, partition, broker)
    this.height = 34;
    root.addEventListener("scroll", () => this.draw(), { passive: true });
    root.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.resized()).observe(root);
  }

  resized() {
    this.height = parseFloat(getComputedStyle(this.root).getPropertyValue("--row")) || 34;
    this.show(this.lines, this.brokers);
  }

  show(lines, brokers) {
    this.lines = lines;
    this.brokers = brokers;
    this.active = Math.min(this.active, Math.max(0, lines.length - 1));
    this.root.setAttribute("aria-rowcount", lines.length);
    this.tall.style.height = `${lines.length * this.height}px`;
    this.draw();
  }

  draw() {
    const { scrollTop, clientHeight } = this.root;
    const first = Math.max(0, Math.floor(scrollTop / this.height) - AROUND);
    const last = Math.min(
      this.lines.length,
      Math.ceil((scrollTop + clientHeight) / this.height) + AROUND,
    );
    const hadFocus = this.rows.contains(document.activeElement);
    const seen = new Set();
    let before = null;
    for (let index = first; index < last; index += 1) {
      const line = this.lines[index];
      const key = keyOf(line);
      seen.add(key);
      const { element } = this.row(key, line, index);
      const next = before ? before.nextSibling : this.rows.firstChild;
      if (next !== element) this.rows.insertBefore(element, next);
      before = element;
    }
    for (const [key, { element }] of this.made) {
      if (seen.has(key)) continue;
      element.remove();
      this.made.delete(key);
    }
    this.rows.style.transform = `translateY(${first * this.height}px)`;
    if (hadFocus && !this.rows.contains(document.activeElement)) {
      this.rows.querySelector('[tabindex="0"]')?.focus({ preventScroll: true });
    }
  }

  row(key, line, index) {
    const stamp = line.partition
      ? `${line.partition.row.join("|")} ${line.klass} ${this.outOfSyncStamp(line)}`
      : `${line.topic.name} ${line.worst} ${line.isOpen} ${JSON.stringify(line.counts)}`;
    let found = this.made.get(key);
    if (!found || found.stamp !== stamp) {
      const element = line.partition ? this.partitionRow(line) : this.topicRow(line);
      if (found) {
        if (line.partition && found.row !== line.partition.row) element.classList.add("fresh");
        const isFocused = found.element === document.activeElement;
        found.element.replaceWith(element);
        if (isFocused) {
          element.tabIndex = 0;
          element.focus({ preventScroll: true });
        }
      }
      found = { element, stamp, row: line.partition?.row };
      this.made.set(key, found);
      element.addEventListener("click", () => this.click(found.index));
    }
    found.index = index;
    const isChosen = line.partition !== undefined && line.partition.number === this.chosen;
    found.element.setAttribute("aria-selected", String(isChosen));
    found.element.setAttribute("aria-rowindex", index + 1);
    found.element.tabIndex = index === this.active ? 0 : -1;
    return found;
  }

  // Cells of replicas out of sync depend on their brokers' states and on their progress.
  outOfSyncStamp({ topic, partition }) {
    if (partition.leader !== NONE && partition.isr.length === partition.replicas.length) return "";
    const of = (id) => [this.brokers.get(id)?.state, this.progressOf(topic, partition, id)];
    return JSON.stringify(partition.replicas.map(of));
  }

  topicRow({ topic, worst, counts, total, isOpen }) {
    const bar = el("span", { class: "bar", "aria-hidden": true });
    const ranked = Object.entries(counts).sort((a, b) => CLASSES[b[0]].rank - CLASSES[a[0]].rank);
    for (const [klass, number] of ranked) {
      const piece = el("i", { "data-class": klass });
      piece.style.flexGrow = number;
      bar.append(piece);
    }
    const words = ranked.map(([klass, number]) =>
      number === total ? `all ${CLASSES[klass].many}` : `${number.toLocaleString("en")} ${CLASSES[klass].many}`,
    );
    return el(
      "div",
      { class: "row topic", role: "row", "aria-level": 1, "aria-expanded": String(isOpen), "data-class": worst },
      el("span", { class: "cname", role: "gridcell" },
        el("span", { class: "twist", "aria-hidden": true }, isOpen ? "▾" : "▸"), nameOf(topic.name)),
      el("span", { class: "cstate", role: "gridcell" }, badge(worst, topic.head.retained ? null : undefined)),
      el("span", { class: "cbar", role: "gridcell" }, bar,
        el("span", { class: "quiet" }, `${count(total, "partition")}: ${words.join(", ") || "none yet"}`)),
    );
  }

  partitionRow({ topic, partition, klass }) {
    return el(
      "div",
      { class: "row partition", role: "row", "aria-level": 2, "data-class": klass },
      el("span", { class: "cname", role: "gridcell" },
        nameOf(topic.name, "name quiet"), el("b", {}, `-${partition.number}`)),
      el("span", { class: "cstate", role: "gridcell" }, badge(klass)),
      el("span", { class: "ccells", role: "gridcell" }, ...cellsOf(partition, this.brokers, (id) => this.progressOf(topic, partition, id))),
      el("span", { class: "cmeter", role: "gridcell" }, meter(partition)),
      el("span", { class: "cepoch quiet", role: "gridcell" }, `epoch ${partition.leaderEpoch}`),
    );
  }

  click(index) {
    this.active = index;
    this.act(this.lines[index]);
  }

  act(line) {
    if (!line) return;
    if (line.partition) this.on.topic(line.topic, line.partition);
    else this.on.open(line.topic, !line.isOpen);
  }

  key(event) {
    if (event.target !== this.root && !this.rows.contains(event.target)) return;
    const line = this.lines[this.active];
    const page = Math.max(1, Math.floor(this.root.clientHeight / this.height) - 1);
    const steps = {
      ArrowDown: 1, ArrowUp: -1, j: 1, k: -1,
      PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity,
    };
    if (event.key in steps) this.move(this.active + steps[event.key]);
    else if (event.key === "ArrowRight" && line && !line.partition) this.on.open(line.topic, true);
    else if (event.key === "ArrowLeft" && line) this.close(line);
    else if (event.key === " " && line) this.act(line);
    else if (event.key === "Enter" && line) this.on.topic(line.topic, line.partition);
    else return;
    event.preventDefault();
  }

  close(line) {
    if (line.partition) {
      this.move(this.lines.findIndex((other) => other.topic === line.topic && !other.partition));
    } else this.on.open(line.topic, false);
  }

  move(to) {
    this.active = Math.max(0, Math.min(this.lines.length - 1, to));
    const top = this.active * this.height;
    const { scrollTop, clientHeight } = this.root;
    if (top < scrollTop) this.root.scrollTop = top;
    else if (top + this.height > scrollTop + clientHeight) {
      this.root.scrollTop = top + this.height - clientHeight;
    }
    this.draw();
    this.focus();
  }

  focus() {
    this.made.get(this.lines.length ? keyOf(this.lines[this.active]) : "")?.element.focus({ preventScroll: true });
  }
}

const keyOf = (line) => (line.partition ? `${line.topic.id}/${line.partition.number}` : line.topic.id);

export function badge(klass, label = CLASSES[klass].label) {
  return el("span", { class: "badge", "data-class": klass },
    el("i", { "aria-hidden": true }, CLASSES[klass].mark), label ?? CLASSES[klass].label);
}

export function cellsOf(partition, brokers, progressOf) {
  return partition.replicas.map((id) => {
    const letter = partition.cell(id, brokers);
    const note = partition.adding.includes(id) ? ", being added" : partition.removing.includes(id) ? ", being removed" : "";
    return replica(letter, id, note, "CE".includes(letter) ? progressOf(id) : undefined);
  });
}

export function replica(letter, id, note = "", progress = undefined) {
  const texts = progress && progressTexts(progress);
  const what = `${CELLS[letter]}${note}${texts ? `, ${texts.words}` : ""}`;
  return el("span", { class: "cell", "data-cell": letter, title: `Broker ${id}: ${what}` },
    el("i", { "aria-hidden": true }), el("b", { "aria-hidden": true }, letter),
    el("span", { "aria-hidden": true }, String(id)),
    el("span", { class: "hidden" }, `broker ${id} ${what};`),
    texts && el("span", { class: "progress", "aria-hidden": true },
      el("span", {}, texts.lag), texts.speed && el("span", { class: "speed" }, texts.speed), texts.toGo && el("span", {}, texts.toGo)));
}

// In-sync replicas as boxes, with a line after as many as min.insync.replicas wants.
export function meter(partition) {
  const all = Math.max(partition.replicas.length, partition.minIsr);
  const boxes = el("span", { class: "boxes", "aria-hidden": true });
  for (let number = 1; number <= all; number += 1) {
    boxes.append(el("i", { class: (number <= partition.isr.length ? "in" : "out") + (number === partition.minIsr ? " min" : "") }));
  }
  return el("span", { class: "meter", title: `${partition.isr.length} in sync, min.insync.replicas ${partition.minIsr}` },
    boxes, el("span", {}, `ISR ${partition.isr.length}/${partition.replicas.length}`),
    el("span", { class: "quiet" }, ` min ${partition.minIsr}`));
}

export { NONE };
