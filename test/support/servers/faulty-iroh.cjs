/**
 * Loaded before the program: iroh as it is, but the file FAULT_FILE says what goes wrong. `drop`: messages of
 * peers are lost. `lagged` and `broken`: every subscription reports that, once. FAULT_FILE.seen says which
 * fault has taken effect.
 */
const { readFileSync, writeFileSync } = require('node:fs');
const Module = require('node:module');

const POLL_MS = 50;
const load = Module._load;
const callbacks = new Set();
let fault = '';

function look() {
  const before = fault;
  fault = readFileSync(process.env.FAULT_FILE, 'utf8').trim();
  if (fault === before) return;
  const reported = [...callbacks];
  if (fault === 'lagged') for (const tell of reported) tell(null, { lagged: true });
  if (fault === 'broken') for (const tell of reported) tell(new Error('the stream is broken'));
  writeFileSync(`${process.env.FAULT_FILE}.seen`, fault);
}

async function faultyIroh(Iroh, options) {
  const { net, node, gossip } = await Iroh.memory(options);
  setInterval(look, POLL_MS).unref();
  return {
    net,
    node,
    gossip: {
      subscribe(topic, peers, tell) {
        callbacks.add(tell);
        return gossip.subscribe(topic, peers, (error, message) => {
          if (fault !== 'drop' || !message?.received) tell(error, message);
        });
      },
    },
  };
}

Module._load = function (request, ...more) {
  const library = load.call(this, request, ...more);
  if (request !== '@number0/iroh') return library;
  return { ...library, Iroh: { memory: (options) => faultyIroh(library.Iroh, options) } };
};
