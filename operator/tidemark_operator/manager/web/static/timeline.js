// The time line: a picture of the last hour that can be scrubbed, and the events with reasons.

import { asSentence, clock, el, nameOf, svg } from "./dom.js";
import { count, duration } from "./model.js";

const SPAN_MS = 3_600_000;
const BINS = 60;
const SHOWN = 400;
const MANY = 6;

export class Timeline {
  // on: {at(ms or null), topic(name, partition)}
  constructor(scrub, list, on) {
    this.on = on;
    this.list = list;
    this.events = [];
    this.atMs = null;
    this.drawn = "";
    this.opened = new Set(); // groups of events that are open, by their oldest
    this.picture = svg("svg", { viewBox: `0 0 ${BINS * 4} 28`, preserveAspectRatio: "none", "aria-hidden": "true" });
    this.slider = el("input", {
      type: "range", min: -SPAN_MS / 1000, max: 0, value: 0, step: 1, "aria-label": "Time to show, seconds from now",
      oninput: () => this.scrubbed(),
    });
    this.label = el("output", {}, "Now");
    this.back = el("button", { type: "button", class: "plain", hidden: true, onclick: () => this.live() }, "Back to live");
    this.earlier = el("button", { type: "button", class: "plain", title: "Event before", "aria-label": "Event before", onclick: () => this.step(-1) }, "◂");
    this.later = el("button", { type: "button", class: "plain", title: "Event after", "aria-label": "Event after", onclick: () => this.step(1) }, "▸");
    scrub.append(this.picture, this.slider, el("div", { class: "scrubline" }, this.earlier, this.later, this.label, el("span", { class: "grow" }), this.back));
  }

  live() {
    this.slider.value = 0;
    this.scrubbed();
  }

  step(by) {
    const from = this.atMs ?? Infinity;
    const event = by < 0
      ? this.events.findLast((each) => each.atMs < from - 1)
      : this.events.find((each) => each.atMs > from);
    if (event) this.set(event.atMs);
    else if (by > 0) this.live();
  }

  set(atMs) {
    this.slider.value = Math.round((atMs - this.now()) / 1000);
    this.atMs = atMs;
    this.tell();
    this.on.at(atMs);
  }

  scrubbed() {
    const back = Number(this.slider.value);
    this.atMs = back >= 0 ? null : this.now() + back * 1000;
    this.tell();
    this.on.at(this.atMs);
  }

  tell() {
    const { atMs } = this;
    this.back.hidden = atMs === null;
    const words = atMs === null ? "Now" : `${clock(atMs)}, ${duration(this.now() - atMs)} ago`;
    this.label.textContent = words;
    this.slider.setAttribute("aria-valuetext", words);
    if (atMs !== null) this.slider.value = Math.round((atMs - this.now()) / 1000);
  }

  now() {
    return Date.now() + (this.skewMs ?? 0);
  }

  // events: oldest first; of: which of them concern what is open.
  show(events, of = () => true) {
    this.events = events;
    const now = this.now();
    const found = [];
    let rest = 0;
    for (let index = events.length - 1; index >= 0; index -= 1) {
      const event = events[index];
      if (this.atMs !== null && event.atMs > this.atMs) continue;
      if (!of(event)) continue;
      if (found.length < SHOWN) found.push(event);
      else rest += 1;
    }
    this.draw(now);
    const stamp = `${found[0]?.number} ${found.length} ${rest} ${this.atMs}`;
    if (stamp === this.drawn) return;
    const scroll = this.list.scrollTop;
    const newest = Number(this.drawn.split(" ")[0]) || Infinity;
    this.drawn = stamp;
    const items = this.items(found, newest);
    if (rest) items.push(el("li", { class: "quiet" }, `${rest.toLocaleString("en")} earlier events: drag the time line back.`));
    if (!items.length) items.push(el("li", { class: "quiet" }, "No events yet."));
    this.list.replaceChildren(...items);
    this.list.scrollTop = scroll;
  }

  // A broker that fails changes many partitions at once: those of a moment are one item.
  items(found, newest) {
    const items = [];
    for (let index = 0; index < found.length; ) {
      let end = index;
      while (end < found.length && found[end].partition >= 0 && found[index].atMs - found[end].atMs < 2000) end += 1;
      if (end - index <= MANY) {
        items.push(this.item(found[index], found[index].number > newest));
        index += 1;
      } else {
        items.push(this.many(found.slice(index, end), found[index].number > newest));
        index = end;
      }
    }
    return items;
  }

  many(events, isNew) {
    const kinds = new Map();
    for (const { kind } of events) kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
    const topics = [...new Set(events.map((event) => event.topic))];
    const details = el("details", {},
      el("summary", {}, `${topics.slice(0, 3).join(", ")}${topics.length > 3 ? ` and ${count(topics.length - 3, "more topic")}` : ""}`));
    const oldest = events.at(-1).number;
    const fill = () => details.append(el("ol", {}, ...events.map((event) => this.item(event, false))));
    if (this.opened.has(oldest)) {
      details.open = true;
      fill();
    }
    details.addEventListener("toggle", () => {
      if (!details.open) this.opened.delete(oldest);
      else {
        this.opened.add(oldest);
        if (!details.querySelector("ol")) fill();
      }
    });
    const { atMs } = events[0];
    return el("li", { class: isNew ? "fresh" : "", "data-warning": String(events.some((event) => event.warning)) },
      el("button", { type: "button", class: "when", title: "Show this moment", onclick: () => this.set(atMs) }, clock(atMs)),
      el("strong", {}, [...kinds].map(([kind, number]) => `${kind} ×${number}`).join(", ")), details);
  }

  item(event, isNew) {
    const where = event.topic
      ? el("button", { type: "button", class: "where", onclick: () => this.on.topic(event.topic, event.partition) },
          nameOf(event.topic), event.partition >= 0 ? `-${event.partition}` : "")
      : null;
    return el("li", { class: isNew ? "fresh" : "", "data-warning": String(event.warning) },
      el("button", { type: "button", class: "when", title: "Show this moment", onclick: () => this.set(event.atMs) }, clock(event.atMs)),
      el("strong", {}, event.kind), where,
      el("p", { dir: "auto" }, asSentence(event.sentence, `${event.topic}-${event.partition}`)));
  }

  draw(now) {
    const bins = Array.from({ length: BINS }, () => [0, 0]);
    for (const event of this.events) {
      const index = BINS - 1 - Math.floor((now - event.atMs) / (SPAN_MS / BINS));
      if (index >= 0 && index < BINS) bins[index][event.warning ? 1 : 0] += 1;
    }
    const high = Math.max(1, ...bins.map(([calm, warned]) => calm + warned));
    const scale = (number) => (number ? Math.max(3, (26 * Math.log1p(number)) / Math.log1p(high)) : 0);
    const bars = [];
    bins.forEach(([calm, warned], index) => {
      const all = scale(calm + warned);
      const red = calm + warned ? (all * warned) / (calm + warned) : 0;
      if (all - red) bars.push(svg("rect", { class: "calm", x: index * 4 + 0.5, width: 3, y: 28 - all, height: all - red }));
      if (red) bars.push(svg("rect", { class: "warned", x: index * 4 + 0.5, width: 3, y: 28 - red, height: red }));
    });
    this.picture.replaceChildren(...bars);
  }
}
