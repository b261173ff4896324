// Runs a model that modelcc compiled for WebGPU.  No dependency:
//
//   import { load } from "./modelcc.js";
//   const model = await load("./");
//   const { outputs, milliseconds } = await model.run({ x: new Float32Array(…) });
//
// model.json says what there is: buffers, constants, kernels, and the steps of a run.

const ARRAYS = {
  f64: Float64Array, f32: Float32Array, i64: BigInt64Array, u64: BigUint64Array,
  i32: Int32Array, u32: Uint32Array, i16: Int16Array, u16: Uint16Array, f16: Uint16Array,
  bf16: Uint16Array, i8: Int8Array, u8: Uint8Array, bool: Uint8Array,
};
const ROW = 65535;
const words = (bytes) => Math.max(4, (bytes + 3) & ~3);

/** What went wrong, for whoever uses the page. */
export class ModelError extends Error {
  name = "ModelError";
}

/** The array type of an element type; half floats are their bits. */
export const arrayOf = (dtype) => ARRAYS[dtype];

/** How many elements a tensor has. */
export const countOf = (tensor) => tensor.shape.reduce((a, b) => a * b, 1);

/** The model in the folder `base`, ready to run.  `progress(part, of)` hears of its weights. */
export async function load(base = "./", progress = () => {}) {
  const at = (name) => new URL(name, new URL(base, location.href));
  const model = await (await fetched(at("model.json"))).json();
  const device = await open(model.limits);
  const texts = (await (await fetched(at("kernels.wgsl"))).text()).split(/^\/\/ ---- .*\n/m).slice(1);
  const host = model.host ? await hostOf(at("host.wasm"), model) : null;
  device.pushErrorScope("out-of-memory");
  const run = new Run(model, device, host);
  if (await device.popErrorScope()) {
    const total = model.buffers.reduce((a, b) => a + b, 0);
    throw new ModelError(`The device has less memory than the model takes: ${total} bytes.`);
  }
  await Promise.all(model.kernels.map((kernel, n) => run.build(kernel, texts[n])));
  await run.fill(at("weights.bin"), progress);
  return run;
}

async function fetched(url) {
  const answer = await fetch(url);
  if (!answer.ok) throw new ModelError(`${url} is not there (${answer.status})`);
  return answer;
}

async function open(limits) {
  if (!navigator.gpu) {
    throw new ModelError("This browser has no WebGPU: take a recent Chrome, Edge, Firefox or Safari, "
      + "over https or from localhost.");
  }
  const adapter = await navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
  if (!adapter) throw new ModelError("WebGPU finds no graphics device on this machine.");
  for (const [name, wanted] of Object.entries(limits)) {
    if (adapter.limits[name] < wanted) {
      throw new ModelError(`The model wants ${name} of ${wanted}, and this device has `
        + `${adapter.limits[name]}: ${wanted - adapter.limits[name]} too few.`);
    }
  }
  const device = await adapter.requestDevice({ requiredLimits: limits });
  device.adapterName = [adapter.info.vendor, adapter.info.architecture, adapter.info.description]
    .filter(Boolean).join(" ") || "unknown";
  return device;
}

/** Functions of the host, and its memory from what they leave free on. */
async function hostOf(url, model) {
  let memory, base = 0;
  const bytes = () => new Uint8Array(memory.buffer);
  const env = {
    memcpy: (to, from, n) => (bytes().copyWithin(to, from, from + n), to),
    memmove: (to, from, n) => (bytes().copyWithin(to, from, from + n), to),
    memset: (to, value, n) => (bytes().fill(value, to, to + n), to),
  };
  const code = await (await fetched(url)).arrayBuffer();
  const { instance } = await WebAssembly.instantiate(code, { env });
  memory = instance.exports.memory;
  base = Math.ceil(instance.exports.__heap_base.value / 256) * 256;
  const missing = base + model.host.bytes - memory.buffer.byteLength;
  if (missing > 0) memory.grow(Math.ceil(missing / 65536));
  return {
    base,
    call: instance.exports,
    at: (address, size) => new Uint8Array(memory.buffer, base + address, size),
  };
}

class Run {
  constructor(model, device, host) {
    this.model = model;
    this.inputs = model.inputs;
    this.outputs = model.outputs;
    this.device = device;
    this.adapter = device.adapterName;
    this.host = host;
    this.pipelines = [];
    this.bound = new Map();
    this.lost = null;
    this.busy = Promise.resolve();
    device.lost.then((info) => { this.lost = info.message || info.reason; });
    const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
    this.buffers = model.buffers.map((size) => device.createBuffer({ size: words(size), usage }));
    const largest = Math.max(4, ...model.outputs.map((t) => t.at[2]), model.faults,
      ...model.steps.filter((s) => s.down).map((s) => s.down[2]));
    this.staging = device.createBuffer({
      size: words(largest), usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST,
    });
  }

  async build(kernel, text) {
    const count = kernel.buffers + (kernel.sizes ? 1 : 0);
    const kind = (n) => ({ type: n < kernel.buffers ? "storage" : "uniform" });
    const layout = this.device.createBindGroupLayout({
      entries: Array.from({ length: count }, (_, n) => (
        { binding: n, visibility: GPUShaderStage.COMPUTE, buffer: kind(n) })),
    });
    const pipeline = await this.device.createComputePipelineAsync({
      label: kernel.name,
      layout: this.device.createPipelineLayout({ bindGroupLayouts: [layout] }),
      compute: { module: this.device.createShaderModule({ code: text }), entryPoint: "main" },
    });
    this.pipelines[this.model.kernels.indexOf(kernel)] = { pipeline, layout };
  }

  /** Weights are written as they come, so that no more than a part of them is in memory. */
  async fill(url, progress) {
    if (!this.model.weights.length) return;
    const reader = (await fetched(url)).body.getReader();
    const total = this.model.weights.reduce((sum, w) => sum + words(w[2]), 0);
    let rest = new Uint8Array(0), done = 0;
    for (const [buffer, offset, size, address] of this.model.weights) {
      const taken = new Uint8Array(words(size));
      for (let filled = 0; filled < taken.length;) {
        if (!rest.length) {
          const { value } = await reader.read();
          if (!value) throw new ModelError("weights.bin is too short: copy the whole folder.");
          rest = value;
        }
        const part = rest.subarray(0, taken.length - filled);
        taken.set(part, filled);
        filled += part.length;
        rest = rest.subarray(part.length);
      }
      if (buffer >= 0) this.device.queue.writeBuffer(this.buffers[buffer], offset, taken);
      if (address >= 0) this.host.at(address, size).set(taken.subarray(0, size));
      progress(done += taken.length, total);
    }
  }

  /** Outputs by name, and the time from the first upload to the last byte read.  One run is after
   *  the other, also of those that are asked for at the same time. */
  run(inputs) {
    const result = this.busy.then(() => this.once(inputs));
    this.busy = result.catch(() => {});
    return result;
  }

  async once(inputs) {
    if (this.lost !== null) throw new ModelError(`The graphics device was lost: ${this.lost}`);
    const given = this.inputs.map((tensor) => this.checked(tensor, inputs[tensor.name]));
    this.device.pushErrorScope("validation");
    const start = performance.now();
    this.inputs.forEach((tensor, n) => this.write(tensor.at, given[n]));
    this.encoder = this.device.createCommandEncoder();
    if (this.model.faults) this.encoder.clearBuffer(this.buffers[0]);
    for (const [n, step] of this.model.steps.entries()) await this.step(step, n);
    const outputs = {};
    for (const tensor of this.outputs) {
      const bytes = await this.read(tensor.at);
      outputs[tensor.name] = { ...tensor, data: new ARRAYS[tensor.dtype](bytes) };
    }
    if (this.model.faults) await this.check();
    const milliseconds = performance.now() - start;
    const error = await this.device.popErrorScope();
    if (error) throw new ModelError(error.message);
    return { outputs, milliseconds };
  }

  checked(tensor, data) {
    const kind = ARRAYS[tensor.dtype], count = countOf(tensor);
    if (!(data instanceof kind) || data.length !== count) {
      throw new ModelError(`Input ${tensor.name} is ${tensor.dtype}[${tensor.shape}]: `
        + `${kind.name} of ${count} elements.`);
    }
    return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  }

  write([buffer, offset, size, address], bytes) {
    if (address >= 0) this.host.at(address, size).set(bytes);
    if (buffer < 0 || !size) return;
    const whole = bytes.length % 4 ? new Uint8Array(words(size)) : bytes;
    if (whole !== bytes) whole.set(bytes);
    this.device.queue.writeBuffer(this.buffers[buffer], offset, whole);
  }

  async step(step, n) {
    if (step.kernel !== undefined) this.launch(step, n);
    else if (step.copy) this.copy(...step.copy);
    else if (step.down) await this.download(step.down);
    else if (step.up) this.upload(step.up);
    else this.call(step);
  }

  launch(step, n) {
    const { pipeline } = this.pipelines[step.kernel];
    if (!this.pass) this.pass = this.encoder.beginComputePass();
    this.pass.setPipeline(pipeline);
    if (!this.bound.has(n)) this.bound.set(n, this.group(step));
    this.pass.setBindGroup(0, this.bound.get(n));
    const across = Math.min(step.groups, ROW);
    if (across) this.pass.dispatchWorkgroups(across, Math.ceil(step.groups / across));
  }

  group(step) {
    const entries = step.at.map(([buffer, offset, size], binding) => (
      { binding, resource: { buffer: this.buffers[buffer], offset, size: words(size) } }));
    if (step.sizes.length) {
      const numbers = new Int32Array(step.sizes);
      const buffer = this.device.createBuffer({
        size: numbers.byteLength, usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST,
      });
      this.device.queue.writeBuffer(buffer, 0, numbers);
      entries.push({ binding: entries.length, resource: { buffer } });
    }
    return this.device.createBindGroup({ layout: this.pipelines[step.kernel].layout, entries });
  }

  endPass() {
    if (this.pass) this.pass.end();
    this.pass = null;
  }

  submit() {
    this.endPass();
    this.device.queue.submit([this.encoder.finish()]);
    this.encoder = this.device.createCommandEncoder();
  }

  /** Within a buffer by way of another one. */
  copy(from, fromOffset, to, toOffset, size) {
    this.endPass();
    let [source, start] = [this.buffers[from], fromOffset];
    if (from === to) {
      const usage = GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
      const between = this.device.createBuffer({ size: words(size), usage });
      this.encoder.copyBufferToBuffer(source, start, between, 0, words(size));
      [source, start] = [between, 0];
    }
    this.encoder.copyBufferToBuffer(source, start, this.buffers[to], toOffset, words(size));
  }

  async download([buffer, offset, size, address]) {
    const bytes = await this.read([buffer, offset, size, -1]);
    this.host.at(address, size).set(new Uint8Array(bytes));
  }

  upload([buffer, offset, size, address]) {
    this.submit();  // what was launched before reads the old contents
    if (size) this.device.queue.writeBuffer(this.buffers[buffer], offset, this.host.at(address, words(size)));
  }

  /** A function of the host: addresses of its tensors, sizes, and no thread pool. */
  call(step) {
    const { base, at, call } = this.host;
    const faults = step.faults >= 0 ? [base + step.faults] : [];
    const count = 16 * step.checks.length;
    if (count) at(step.faults, count).fill(0);
    call[step.host](...step.at.map((address) => base + address), ...step.sizes.map(BigInt), ...faults,
      ...(step.pool ? [0] : []));
    if (count) this.refuse(step.checks, at(step.faults, count).slice().buffer);
  }

  async read([buffer, offset, size, address]) {
    if (!size) return new ArrayBuffer(0);
    if (buffer < 0) return this.host.at(address, size).slice().buffer;
    this.endPass();
    this.encoder.copyBufferToBuffer(this.buffers[buffer], offset, this.staging, 0, words(size));
    this.submit();
    await this.staging.mapAsync(GPUMapMode.READ, 0, words(size));
    const bytes = this.staging.getMappedRange(0, words(size)).slice(0, size);
    this.staging.unmap();
    return bytes;
  }

  /** Kernels note an index that is out of range, and leave. */
  async check() {
    this.refuse(this.model.checks, await this.read([0, 0, this.model.faults, -1]));
  }

  refuse(checks, bytes) {
    const found = new BigInt64Array(bytes);
    for (const { at, where } of checks) {
      if (found[at / 8]) throw new ModelError(`Index ${found[at / 8 + 1]} is out of range: ${where}`);
    }
  }
}
