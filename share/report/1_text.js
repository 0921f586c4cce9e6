"use strict";
// Elements and numbers. Text from the data goes through textContent, never through markup.

const data = JSON.parse(document.getElementById("data").textContent);

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) {
      made.addEventListener(name.slice(2), value);
    } else if (value !== null && value !== undefined) {
      made.setAttribute(name, value);
    }
  }
  made.append(...children.filter(child => child !== null && child !== undefined));
  return made;
}

// About four significant digits; all of them are in the cell's title.
function numberText(value) {
  if (typeof value !== "number") {
    return "–";
  }
  if (value === 0 || Number.isInteger(value) && Math.abs(value) < 1e6) {
    return String(value);
  }
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) {
    return value.toExponential(2);
  }
  return value.toFixed(Math.min(4, Math.max(0, 3 - Math.floor(Math.log10(size)))));
}

// What is to be unfolded is made when it first is: pages of many arms would be slow to open otherwise.
function unfolding(summary, build) {
  const made =
      element("details", {ontoggle: () => made.open && made.fill()}, element("summary", {}, summary));
  made.fill = () => {
    made.fill = () => {};
    made.append(build());
  };
  return made;
}

const MIB = 1024 * 1024;

function bytesText(value) {
  if (typeof value !== "number") {
    return "–";
  }
  return value >= MIB ? (value / MIB).toFixed(2) + " MiB" :
      value >= 1024   ? (value / 1024).toFixed(1) + " KiB" :
                        value + " B";
}

function percentText(fraction) {
  return typeof fraction === "number" ? (100 * fraction).toFixed(1) + " %" : "–";
}

function intervalText(low, high) {
  return "[" + numberText(low) + ", " + numberText(high) + "]";
}

// Plotly takes some tags in its texts for markup.
function plotText(text) {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

// The middle is left out: how a name begins and ends tells more.
function shortened(text, length) {
  return text.length <= length ?
      text :
      text.slice(0, Math.ceil(length / 2) - 1) + "…" + text.slice(text.length - Math.floor(length / 2));
}

function metricLabel(name) {
  return data.metrics[name] ? data.metrics[name].label : name;
}

// A text that may be broken between the parts of a policy's name.
function breakable(text) {
  return text.split(/(?<=[:,+·/])/).flatMap((part, i) => i === 0 ? [part] : [element("wbr"), part]);
}

// An arm's name in few letters; its budget is always there.
function shortArmName(row, length) {
  const question = row.group.question === "none" ? "" : " · " + row.group.question;
  const end = (row.arm.budget ? " " + row.arm.budget : "") + question;
  return shortened(row.arm.method, Math.max(6, length - end.length)) + end;
}

// An arm's name beside others: with its question mode, where it has one.
function armName(group) {
  return group.policy + (group.question === "none" ? "" : " · " + group.question);
}
