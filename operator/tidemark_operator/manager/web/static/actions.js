// Actions, where the operator allows them: each says what will happen and asks before it does it.

import { asSentence, el } from "./dom.js";
import { NONE, whatHappens } from "./model.js";

export class Actions {
  constructor(dialog) {
    this.dialog = dialog;
    this.kills = ""; // "pod" or "process"; "": there are no actions
  }

  get areOn() {
    return Boolean(this.kills);
  }

  ofBroker(pool, id) {
    if (!this.areOn) return [];
    const noun = this.kills === "pod" ? "pod" : "process";
    return [
      this.button(`Drain broker ${id}`, `Drain broker ${id}?`, () => whatHappens.drain(pool, id), "drain", { pool: pool.name, broker: id }),
      this.button(`Kill this ${noun}`, `Kill the ${noun} of broker ${id}?`, () => whatHappens.kill(pool, id, this.kills), "kill", { pool: pool.name, broker: id }),
    ];
  }

  ofPartition(pool, topic, partition) {
    const preferred = partition.replicas[0] ?? NONE;
    if (!this.areOn || partition.leader === preferred) return [];
    const body = { pool: pool.name, topic: topic.name, partition: partition.number };
    const title = `Elect the preferred leader of ${topic.name}-${partition.number}?`;
    return [this.button("Elect preferred leader", title, () => whatHappens.elect(topic, partition), "elect", body)];
  }

  button(label, title, describe, action, body) {
    return el("button", { type: "button", class: "plain act", "data-action": action, onclick: () => this.ask(label, title, describe(), action, body) }, label);
  }

  ask(label, title, sentences, action, body) {
    const outcome = el("p", { class: "outcome", role: "status" });
    const go = el("button", { type: "button", class: "plain danger", onclick: () => this.perform(go, outcome, action, body) }, label);
    this.dialog.replaceChildren(
      el("h2", { id: "confirmtitle", dir: "auto" }, title),
      el("ul", {}, ...sentences.map((sentence) => el("li", { dir: "auto" }, sentence))),
      outcome,
      el("form", { method: "dialog", class: "buttons" }, el("button", { class: "plain", autofocus: true }, "Cancel"), go),
    );
    this.dialog.showModal();
  }

  async perform(go, outcome, action, body) {
    go.disabled = true;
    try {
      const response = await fetch(`/v1/actions/${action}`, {
        method: "POST",
        headers: { "Content-Type": "application/json", "X-Tidemark-Action": "1" },
        body: JSON.stringify(body),
      });
      const answer = await response.json();
      if (response.ok) this.dialog.close();
      else outcome.textContent = asSentence(answer.problem ?? `status ${response.status}`);
    } catch {
      outcome.textContent = "The operator does not answer: it is not known whether this was done. Look at the time line.";
    }
  }
}
