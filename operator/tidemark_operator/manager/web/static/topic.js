// The page of one topic: conditions, manifest, and offsets and lag of its replicas as they are read.

import { el, nameOf, svg } from "./dom.js";
import { count, manifestOf } from "./model.js";
import { badge } from "./table.js";

export class TopicPage {
  constructor(root, on) {
    this.root = root;
    this.on = on;
    this.stamp = "";
  }

  hide() {
    this.root.hidden = true;
    this.stamp = "";
  }

  show(topic, name) {
    this.root.hidden = false;
    const stamp = topic ? JSON.stringify([topic.head, topic.summarize().worst, topic.summarize().counts]) : `no ${name}`;
    if (stamp === this.stamp) return;
    this.stamp = stamp;
    const back = el("button", { type: "button", class: "plain", onclick: () => this.on.close() }, "← All topics");
    const title = el("h2", {}, nameOf(topic?.name ?? name));
    if (!topic) {
      this.root.replaceChildren(el("div", { class: "topichead" }, back, title), el("p", {}, "There is no topic of this name."));
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
      el("div", { class: "topichead" }, back, title, badge(topic.summarize().worst)),
      el("p", { class: "quiet" }, facts.join(" · ")),
      ...notices.map((notice) => el("p", { class: "condition", dir: "auto" }, notice)),
      el("details", { class: "manifest" }, el("summary", {}, "Manifest"), el("pre", { tabindex: 0 }, manifestOf(topic))),
    );
  }
}
