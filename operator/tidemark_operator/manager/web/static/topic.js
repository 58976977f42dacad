// The pages of one topic and of one broker: what stands above and below their partitions.

import { el, nameOf } from "./dom.js";
import { LiveOffsets, Why } from "./live.js";
import { count, diskOf, manifestOf } from "./model.js";
import { badge } from "./table.js";

export class Subject {
  // on: {close()}
  constructor(root, more, actions, on) {
    this.root = root;
    this.more = more;
    this.actions = actions;
    this.on = on;
    this.stamp = "";
    this.why = new Why(el("section", { class: "why", "aria-label": "Why", hidden: true }), actions);
    this.offsets = new LiveOffsets(el("div", { class: "live" }));
  }

  hide() {
    this.root.hidden = this.more.hidden = true;
    this.stamp = "";
    this.offsets.stop();
    this.why.hide();
  }

  // isNow: offsets are of now, so there are none of an earlier moment.
  showTopic(pool, name, number, isNow) {
    const topic = pool.topicNamed(name);
    this.root.hidden = false;
    this.more.hidden = !topic;
    if (topic && isNow && !topic.head.retained) this.offsets.show(pool, topic);
    else this.offsets.stop();
    const partition = isNow ? topic?.partitions.get(number) : null;
    if (partition) this.why.show(pool, topic, partition);
    else this.why.hide();
    const summary = topic?.summarize();
    if (!this.isNew(topic ? [name, topic.head, summary.worst] : [name])) return;
    if (!topic) {
      this.root.replaceChildren(this.head(nameOf(name)), el("p", {}, "There is no topic of this name in the pool."));
      return;
    }
    const { head } = topic;
    const facts = [
      count(head.partitions, "partition"),
      `replication factor ${head.replicationFactor}`,
      `min.insync.replicas ${head.config?.["min.insync.replicas"] ?? "1"}`,
      head.retained ? "retained: its Topic is deleted, its data is kept" : `deletion policy ${head.deletionPolicy}`,
    ];
    const notices = [...(head.notices ?? []), ...(head.missingSlices ?? []).map((slice) => `PartitionSlice ${slice} is missing.`)];
    this.root.replaceChildren(
      this.head(nameOf(topic.name), badge(summary.worst)),
      el("p", { class: "quiet" }, facts.join(" · ")),
      ...notices.map((notice) => el("p", { class: "condition", dir: "auto" }, notice)),
    );
    this.more.replaceChildren(
      this.why.root,
      this.offsets.root,
      el("details", { class: "manifest" }, el("summary", {}, "Manifest"),
        el("pre", { tabindex: 0, role: "region", "aria-label": "Manifest" }, manifestOf(topic))),
    );
  }

  // isNow: nothing can be done about an earlier moment.
  showBroker(pool, id, isNow) {
    this.root.hidden = false;
    this.more.hidden = true;
    this.offsets.stop();
    this.why.hide();
    const broker = pool.brokers.get(id);
    const has = pool.counts().byBroker.get(id) ?? { leads: 0, inSync: 0, replicas: 0 };
    const disk = diskOf(pool, id);
    if (!this.isNew([id, broker, has, disk?.long, isNow && this.actions.areOn])) return;
    const facts = broker && [
      broker.restarting ? `${broker.state}, being restarted` : broker.state,
      broker.rack && `rack ${broker.rack}`,
      `Kafka ${broker.address}`,
      `HTTP ${broker.url}`,
      `broker epoch ${broker.epoch}`,
      broker.clockSkewMs !== null && `clock ${broker.clockSkewMs} ms ahead of the controller's`,
      `leads ${has.leads}`,
      `in sync in ${has.inSync} of ${count(has.replicas, "replica")}`,
    ];
    this.root.replaceChildren(
      this.head(`Broker ${id}`),
      ...(broker && disk ? [el("p", { class: "diskline", "data-disk": disk.state }, disk.long)] : []),
      el("p", { class: "quiet wrap" }, facts ? facts.filter(Boolean).join(" · ") : "There is no broker of this id in the pool."),
      ...(broker && isNow ? [el("p", { class: "acts" }, ...this.actions.ofBroker(pool, id))] : []),
    );
  }

  isNew(values) {
    const stamp = JSON.stringify(values);
    const isNew = stamp !== this.stamp;
    this.stamp = stamp;
    return isNew;
  }

  head(...parts) {
    const [title, ...rest] = parts;
    return el("div", { class: "subjecthead" },
      el("button", { type: "button", class: "plain", onclick: () => this.on.close() }, "← All topics"),
      el("h2", {}, title), ...rest);
  }
}
