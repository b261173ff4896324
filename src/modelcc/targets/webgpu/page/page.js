// The page around a model: inputs from files or made up, times, and tables of results.

import { arrayOf, countOf, load } from "./modelcc.js";

const SHOWN = 10, FEWEST = 5;
const byId = (id) => document.getElementById(id);
const FLOATS = ["f32", "f64"];

function make(tag, { parent, text, ...properties } = {}) {
  const made = Object.assign(document.createElement(tag), properties);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}

const typeText = (tensor) => `${tensor.dtype}[${tensor.shape.join(", ")}]`;
const number = (x) => (typeof x === "number" && !Number.isInteger(x)
  ? (Math.abs(x) < 1e-4 || Math.abs(x) >= 1e6 ? x.toExponential(4) : x.toFixed(5)) : String(x));
const time = (ms) => (ms >= 1000 ? `${(ms / 1000).toFixed(2)} s` : `${ms.toFixed(1)} ms`);
const size = (n) => (n >= 1e6 ? `${(n / 1e6).toFixed(1)} MB` : `${(n / 1e3).toFixed(1)} kB`);

/** A number of an input's type; bytes wrap around, 64 bits are BigInt. */
const cast = (dtype, x) => (dtype.endsWith("64") && dtype !== "f64" ? BigInt(Math.trunc(x)) : x);

/** The bits of a half float, rounded to nearest. */
function half(x) {
  const f = new Float32Array([x]), u = new Uint32Array(f.buffer)[0];
  const sign = (u >>> 16) & 0x8000, e = ((u >>> 23) & 255) - 112, m = u & 0x7fffff;
  if (e >= 31) return sign | 0x7c00;
  if (e <= 0) return sign | Math.round(Math.abs(x) * 16777216);
  return sign + ((e << 10) | (m >>> 13)) + ((m >>> 12) & 1);
}
const unhalf = (h) => {
  const e = (h >>> 10) & 31, m = h & 1023, sign = h & 0x8000 ? -1 : 1;
  if (e === 31) return m ? NaN : sign * Infinity;
  return sign * (e ? (1 + m / 1024) * 2 ** (e - 15) : m * 2 ** -24);
};
const unbrain = (h) => new Float32Array(new Uint32Array([h << 16]).buffer)[0];

/** An array for `tensor` of numbers. */
function filled(tensor, numbers) {
  const array = new (arrayOf(tensor.dtype))(countOf(tensor));
  for (let n = 0; n < array.length; n++) {
    const x = numbers(n);
    array[n] = tensor.dtype === "f16" ? half(x)
      : tensor.dtype === "bf16" ? new Uint32Array(new Float32Array([x]).buffer)[0] >>> 16
        : cast(tensor.dtype, x);
  }
  return array;
}

/** Numbers of an output, to look at. */
function numbersOf({ dtype, data }) {
  if (dtype === "f16") return Array.from(data, unhalf);
  return dtype === "bf16" ? Array.from(data, unbrain) : data;
}

// --- .npy

const NPY = { "<f4": "f32", "<f8": "f64", "<i8": "i64", "<u8": "u64", "<i4": "i32", "<u4": "u32",
  "<i2": "i16", "<u2": "u16", "<f2": "f16", "|i1": "i8", "|u1": "u8", "|b1": "bool" };

function readNpy(buffer, tensor) {
  const bytes = new Uint8Array(buffer);
  if (String.fromCharCode(...bytes.subarray(1, 6)) !== "NUMPY") throw new Error("no .npy file");
  const view = new DataView(buffer), long = bytes[6] > 1;
  const start = long ? 12 : 10, length = long ? view.getUint32(8, true) : view.getUint16(8, true);
  const head = new TextDecoder().decode(bytes.subarray(start, start + length));
  const dtype = NPY[/'descr': *'([^']*)'/.exec(head)?.[1]];
  const shape = /'shape': *\(([^)]*)\)/.exec(head)[1].split(",").filter((s) => s.trim()).map(Number);
  if (/'fortran_order': *True/.test(head)) throw new Error("the file is in Fortran's order");
  const data = new (arrayOf(dtype))(buffer.slice(start + length));
  if (data.length !== countOf(tensor)) {
    throw new Error(`the file has [${shape}], and ${tensor.name} is ${typeText(tensor)}`);
  }
  return dtype === tensor.dtype ? data : filled(tensor, (n) => Number(data[n]));
}

function writeNpy(output) {
  const descr = Object.keys(NPY).find((key) => NPY[key] === output.dtype) ?? "<u2";
  const shape = output.shape.join(", ") + (output.shape.length === 1 ? "," : "");
  let head = `{'descr': '${descr}', 'fortran_order': False, 'shape': (${shape}), }`;
  head += " ".repeat(63 - (10 + head.length) % 64) + "\n";
  const front = new Uint8Array(10);
  front.set([0x93, 78, 85, 77, 80, 89, 1, 0, head.length & 255, head.length >> 8]);
  return new Blob([front, head, output.data]);
}

// --- images

/** Where channels, rows and columns are in a shape that may be an image's. */
function imageAxes({ dtype, shape }) {
  const whole = shape.length === 4 && shape[0] === 1 ? shape.slice(1) : shape;
  if (whole.length !== 3 || !(FLOATS.includes(dtype) || dtype === "u8" || dtype === "f16")) return null;
  const [a, b, c] = whole;
  if ([1, 3].includes(a)) return { first: true, channels: a, height: b, width: c };
  return [1, 3].includes(c) ? { first: false, channels: c, height: a, width: b } : null;
}

const SCALES = {
  "ImageNet's mean and deviation": (x, c) => (x / 255 - [0.485, 0.456, 0.406][c])
    / [0.229, 0.224, 0.225][c],
  "0 … 1": (x) => x / 255,
  "-1 … 1": (x) => x / 127.5 - 1,
  "0 … 255": (x) => x,
};

/** The middle of a picture, as large as the input, and the numbers it becomes. */
async function readImage(file, tensor, canvas, scale) {
  const { first, channels, height, width } = imageAxes(tensor);
  const picture = await createImageBitmap(file);
  Object.assign(canvas, { width, height, hidden: false });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const ratio = Math.max(width / picture.width, height / picture.height);
  const [w, h] = [width / ratio, height / ratio];
  context.drawImage(picture, (picture.width - w) / 2, (picture.height - h) / 2, w, h, 0, 0, width, height);
  const pixels = context.getImageData(0, 0, width, height).data, area = width * height;
  const colour = (at, c) => (channels === 3 ? pixels[4 * at + c]
    : 0.299 * pixels[4 * at] + 0.587 * pixels[4 * at + 1] + 0.114 * pixels[4 * at + 2]);
  return filled(tensor, (n) => {
    const c = first ? Math.floor(n / area) : n % channels;
    return scale(colour(first ? n % area : Math.floor(n / channels), c), c);
  });
}

// --- inputs

/** The same numbers in every visit. */
function random(seed) {
  let state = seed >>> 0 || 1;
  return () => {
    state ^= state << 13; state ^= state >>> 17; state ^= state << 5;
    return (state >>> 0) / 4294967296;
  };
}

function madeUp(tensor, seed) {
  const next = random(seed * 2654435761 + 97);
  const small = !FLOATS.includes(tensor.dtype) && !tensor.dtype.includes("f");
  return filled(tensor, () => (small ? Math.floor(next() * (tensor.dtype === "bool" ? 2 : 8))
    : 2 * next() - 1));
}

function inputCard(tensor, place, parent) {
  const card = make("div", { parent, className: "input" });
  const head = make("div", { parent: card });
  make("div", { parent: head, className: "name", text: tensor.name });
  make("div", { parent: head, className: "type", text: typeText(tensor) });
  const body = make("div", { parent: card });
  const row = make("div", { parent: body, className: "row" });
  const ways = ["made up", "file", ...(countOf(tensor) <= 4096 ? ["numbers"] : [])];
  const way = make("select", { parent: row, ariaLabel: `where ${tensor.name} comes from` });
  for (const text of ways) make("option", { parent: way, text });
  const file = make("input", { parent: row, type: "file", hidden: true,
    accept: imageAxes(tensor) ? ".npy,image/*" : ".npy", ariaLabel: `file for ${tensor.name}` });
  const scale = make("select", { parent: row, hidden: true, ariaLabel: "scale of pixels" });
  for (const text of Object.keys(SCALES)) make("option", { parent: scale, text });
  const canvas = make("canvas", { parent: body, hidden: true });
  const area = make("textarea", { parent: body, hidden: true, placeholder: "1, 2, 3 …",
    ariaLabel: `numbers for ${tensor.name}` });
  const note = make("div", { parent: body, className: "note" });
  const numbers = () => area.value.split(/[\s,;[\]]+/).filter(Boolean).map(Number);
  const count = countOf(tensor);
  area.oninput = () => {
    const given = numbers().length, short = given < count && way.value === "numbers";
    note.textContent = short ? `${given} of ${count} numbers: the others are 0` : "";
  };
  way.onchange = () => {
    file.hidden = way.value !== "file";
    scale.hidden = file.hidden || !imageAxes(tensor);
    area.hidden = way.value !== "numbers";
    canvas.hidden = canvas.hidden || file.hidden;
    area.oninput();
  };
  return async () => {
    if (way.value === "numbers") {
      const given = numbers();
      if (given.some(Number.isNaN)) throw new Error(`${tensor.name}: these are no numbers`);
      if (given.length > count) throw new Error(`${tensor.name}: ${given.length} numbers for ${count}`);
      return filled(tensor, (n) => given[n] ?? 0);
    }
    if (way.value === "made up") return madeUp(tensor, place + 1);
    const chosen = file.files[0];
    if (!chosen) throw new Error(`${tensor.name}: choose a file`);
    if (chosen.name.endsWith(".npy")) return readNpy(await chosen.arrayBuffer(), tensor);
    return readImage(chosen, tensor, canvas, SCALES[scale.value]);
  };
}

// --- results

function spread(values) {
  let least = Infinity, most = -Infinity, sum = 0;
  for (const x of values) {
    const v = Number(x);
    least = Math.min(least, v); most = Math.max(most, v); sum += v;
  }
  return `${number(least)} … ${number(most)}, mean ${number(sum / values.length)}`;
}

const percent = (share) => {
  const x = 100 * share;
  return x >= 0.1 ? `${x.toFixed(1)} %` : x >= 1e-3 ? `${x.toPrecision(2)} %` : "< 0.001 %";
};

/** The largest numbers of a line, with the last axis as classes. */
function largest(output, values, names, line) {
  const classes = output.shape.at(-1) ?? 1;
  const row = Array.from(values.slice(line * classes, (line + 1) * classes), Number);
  const order = row.map((_, n) => n).sort((a, b) => row[b] - row[a]).slice(0, SHOWN);
  const top = row[order[0]], whole = row.reduce((sum, x) => sum + Math.exp(x - top), 0);
  return order.map((n) => ({ name: names[n] ?? String(n), value: row[n],
    share: Math.exp(row[n] - top) / whole }));
}

/** Whether the last axis of an output may be one of classes. */
const hasClasses = ({ dtype, shape }) => dtype.includes("f") && (shape.at(-1) ?? 1) >= FEWEST;

/** A table, and which line of the output it shows, if there are several: the last one at first. */
function tables(parent, output, values, names) {
  const lines = values.length / (output.shape.at(-1) ?? 1);
  if (!hasClasses(output) || lines < 2) return table(parent, output, values, names, 0);
  const label = make("label", { parent, className: "note row", text: "line" });
  const line = make("input", { parent: label, type: "number", min: 0, max: lines - 1,
    value: lines - 1 });
  label.append(`of ${lines}, counted from 0`);
  const place = make("div", { parent });
  line.onchange = () => {
    line.value = Math.min(Math.max(0, Math.trunc(Number(line.value))), lines - 1);
    place.replaceChildren();
    table(place, output, values, names, Number(line.value));
  };
  line.onchange();
}

function table(parent, output, values, names, shown) {
  const rows = make("table", { parent });
  const head = make("tr", { parent: rows });
  const titles = hasClasses(output) ? ["class", "value", "softmax", ""] : ["place", "value"];
  titles.forEach((text, n) => make("th", { parent: head, text, className: n && text ? "n" : "" }));
  if (!hasClasses(output)) {
    for (let n = 0; n < Math.min(values.length, SHOWN); n++) {
      const line = make("tr", { parent: rows });
      make("td", { parent: line, text: n });
      make("td", { parent: line, text: number(values[n]), className: "n" });
    }
    return;
  }
  const found = largest(output, values, names, shown);
  for (const { name, value, share } of found) {
    const line = make("tr", { parent: rows });
    make("td", { parent: line, text: name });
    make("td", { parent: line, text: number(value), className: "n" });
    make("td", { parent: line, text: percent(share), className: "n" });
    const cell = make("td", { parent: line, className: "fill" });
    make("i", { parent: cell }).style.width = `${Math.max(1, 100 * share / found[0].share)}%`;
  }
}

function show(outputs, names) {
  const place = byId("results");
  place.replaceChildren(make("h2", { text: "Results" }));
  for (const output of Object.values(outputs)) {
    const block = make("div", { parent: place, className: "output" });
    const head = make("header", { parent: block });
    make("span", { parent: head, className: "name", text: output.name });
    make("span", { parent: head, className: "type", text: typeText(output) });
    const values = numbersOf(output);
    if (values.length) make("span", { parent: head, className: "type", text: spread(values) });
    make("a", { parent: head, text: ".npy", download: `${output.name}.npy`,
      href: URL.createObjectURL(writeNpy(output)) });
    if (values.length) tables(block, output, values, names);
  }
  place.hidden = false;
}

function showTimes(times) {
  const sorted = [...times].sort((a, b) => a - b), place = byId("timing");
  const facts = { first: times[0], median: sorted[(sorted.length - 1) >> 1], best: sorted[0],
    "last": times.at(-1) };
  const grid = place.querySelector(".times");
  grid.replaceChildren();
  for (const [text, ms] of Object.entries(facts)) {
    const block = make("div", { parent: grid });
    make("b", { parent: block, text: time(ms) });
    make("span", { parent: block, text });
  }
  place.hidden = false;
}

const fail = (error) => { byId("error").textContent = error?.message ?? String(error); };

async function start() {
  const bar = byId("bar").firstElementChild;
  const model = await load("./", (part, of) => { bar.style.width = `${100 * part / of}%`; });
  byId("loading").hidden = true;
  const { kernels, steps, arena, weights } = model.model;
  const facts = [model.adapter, `${kernels.length} kernels`, `${steps.length} steps`,
    `${size(weights.reduce((sum, w) => sum + w[2], 0))} of weights`, `${size(arena)} of memory`];
  byId("facts").replaceChildren(...facts.map((text) => make("span", { text })));
  const readers = model.inputs.map((tensor, n) => inputCard(tensor, n, byId("inputs")));
  byId("inputs").hidden = !readers.length;
  byId("running").hidden = false;
  const button = byId("run");
  button.onclick = async () => {
    button.disabled = true;
    fail("");
    try {
      const inputs = {}, times = [];
      for (const [n, tensor] of model.inputs.entries()) inputs[tensor.name] = await readers[n]();
      const labels = byId("labels").files[0];
      const names = labels ? (await labels.text()).split(/\r?\n/) : [];
      let outputs;
      const count = Math.max(1, Number(byId("count").value));
      for (let n = 0; n < count; n++) {
        button.textContent = `Running ${n + 1} of ${count}`;
        const result = await model.run(inputs);
        ({ outputs } = result);
        times.push(result.milliseconds);
      }
      show(outputs, names);
      showTimes(times);
    } catch (error) {
      fail(error);
    }
    button.textContent = "Run";
    button.disabled = false;
  };
}

start().catch((error) => { byId("loading").hidden = true; byId("facts").textContent = ""; fail(error); });
