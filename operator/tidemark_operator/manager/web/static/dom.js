// Build elements. Text goes in as text: a topic's name is never read as HTML.

export function el(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

export function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// Somebody's name, which may be of any direction and length.
export function nameOf(text, kind = "name") {
  return el("bdi", { class: kind, title: text }, text);
}

export const byId = (id) => document.getElementById(id);

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// The operator's texts begin in lower case and end without a full stop. What they are about is left
// out where it stands beside them.
export function asSentence(said, about = "") {
  const text = about && said.startsWith(`${about}: `) ? said.slice(about.length + 2) : said;
  return text && text[0].toUpperCase() + text.slice(1) + (text.endsWith(".") ? "" : ".");
}

export function clock(ms) {
  return new Date(ms).toLocaleTimeString("en-GB");
}
