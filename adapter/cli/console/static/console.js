// Fetches the page again every two seconds, and changes only what is different: scroll position,
// selection and focus stay. Without this file, the pages work, but do not update.
"use strict";

const EVERY = 2000;
const LATE = 15;
const MAX_VISIBLE = 60;
const MAX_HEADER = 6000;
const updates = document.getElementById("updates");
const gone = document.getElementById("gone");
const updated = document.getElementById("updated");
let tag = null;
let last = Date.now();

function morph(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
    old.replaceWith(fresh);
  } else if (old.nodeType === Node.TEXT_NODE) {
    old.data = fresh.data;
  } else if (old.nodeType === Node.ELEMENT_NODE) {
    for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    morphChildren(old, fresh);
  }
}

function keyOf(node) {
  return node?.dataset?.key;
}

function morphChildren(old, fresh) {
  const keyed = new Map();
  for (const each of old.children) if (keyOf(each)) keyed.set(keyOf(each), each);
  let at = old.firstChild;
  for (const each of [...fresh.childNodes]) {
    const key = keyOf(each);
    const match = key ? keyed.get(key) : keyOf(at) ? null : at;
    if (!match) {
      old.insertBefore(each, at);
      continue;
    }
    keyed.delete(key);
    if (match === at) at = at.nextSibling;
    else old.insertBefore(match, at);
    morph(match, each);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function visible() {
  const keys = [];
  let length = 0;
  for (const each of document.querySelectorAll("tr[data-key*='/']")) {
    const box = each.getBoundingClientRect();
    if (box.bottom < 0 || box.top > innerHeight) continue;
    length += each.dataset.key.length + 1;
    if (keys.length === MAX_VISIBLE || length > MAX_HEADER) break;
    keys.push(each.dataset.key);
  }
  return keys.join(" ");
}

function say(text) {
  if (updates.textContent !== text) updates.textContent = text;
}

function age() {
  const seconds = Math.round((Date.now() - last) / 1000);
  updated.textContent = `updated ${seconds} s ago`;
  updated.className = seconds > LATE ? "warning" : "";
}

function ended(text) {
  updated.hidden = Boolean(text);
  if (text && gone.hidden) gone.textContent = `${text} This page is of ${new Date(last).toLocaleTimeString()}.`;
  gone.hidden = !text;
}

async function update() {
  if (document.hidden) return;
  try {
    const headers = { "X-Visible": visible(), ...(tag && { "If-None-Match": tag }) };
    const response = await fetch(location.href, { headers, redirect: "error" });
    if (response.status === 401) return ended("The console was started again: open its new address.");
    ended("");
    last = Date.now();
    if (response.status === 304) return;
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const focused = document.activeElement;
    morph(document.getElementById("main"), page.getElementById("main"));
    if (focused !== document.activeElement && focused?.isConnected) focused.focus({ preventScroll: true });
    tag = response.headers.get("ETag");
  } catch {
    ended("The console has ended: start it again, and open its new address.");
  }
}

async function repeat() {
  await update();
  setTimeout(repeat, EVERY);
}

document.addEventListener("click", (event) => {
  const query = event.target.closest("[data-copy]")?.parentElement.querySelector("code");
  if (query) navigator.clipboard.writeText(query.textContent).then(() => say("Copied."), () => say("The browser does not allow to copy."));
});
setInterval(age, 1000);
setTimeout(repeat, EVERY);
