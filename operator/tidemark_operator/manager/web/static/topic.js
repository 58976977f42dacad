// The page of one topic: conditions, manifest, offsets and lag.

import { el, nameOf } from "./dom.js";
import { LiveOffsets } from "./live.js";
import { count, manifestOf } from "./model.js";
import { badge } from "./table.js";

export class TopicPage {
  constructor(root, on) {
    this.root = root;
    this.on = on;
    this.stamp = "";
    this.offsets = new LiveOffsets(el("div", { class: "live" }));
  }

  hide() {
    this.root.hidden = true;
    this.stamp = "";
    this.offsets.stop();
  }

  // isNow: offsets are of now, so there are none of an earlier moment.
  show(pool, topic, name, isNow) {
    this.root.hidden = false;
    if (topic && isNow && !topic.head.retained) this.offsets.show(pool, topic);
    else this.offsets.stop();
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
      this.offsets.root,
      el("details", { class: "manifest" }, el("summary", {}, "Manifest"), el("pre", { tabindex: 0 }, manifestOf(topic))),
    );
  }
}
