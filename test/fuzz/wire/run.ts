/** Runs the targets over sockets and HTTP against one node, and checks that it leaves nothing behind. */
import { eventually } from '../../support/cli.js';
import { AUTHORS } from '../make/events.js';
import { Broken, type Done } from '../target.js';
import { replayHttp, runHttp } from './http.js';
import { runImport } from './import.js';
import { FuzzedNode } from './node.js';
import { runRawHttp, sendRaw } from './raw-http.js';
import { replaySockets, runSockets } from './sockets.js';

/**
 * Beyond the events that the node holds in memory to answer from. Recent ids, rates, work by address, plans
 * of queries: all bounded, and full after the first part of a run.
 */
const HEAP_GROWTH_MAX = 64 * 1_048_576;

type Run = (node: FuzzedNode, seed: string, inputs: number) => Promise<Done>;

/** Each with its share of the inputs. */
export const WIRE_TARGETS: readonly { readonly name: string; readonly share: number; readonly run: Run }[] = [
  { name: 'sockets', share: 0.7, run: runSockets },
  { name: 'http', share: 0.2, run: runHttp },
  { name: 'raw-http', share: 0.05, run: runRawHttp },
  { name: 'import', share: 0.05, run: runImport },
];

export interface WireResult {
  readonly done: readonly Done[];
  readonly heapBefore: number;
  readonly heapAfter: number;
}

export async function runWire(
  targets: typeof WIRE_TARGETS,
  seed: string,
  inputs: number,
  log: (done: Done) => Done,
): Promise<WireResult> {
  const node = await FuzzedNode.start(AUTHORS[0]!.pubkey);
  try {
    // The first part loads what later ones need, and fills what is bounded.
    const each = (part: number) =>
      targets.map(({ name, share, run }) => ({ name, run, count: Math.ceil(inputs * share * part) }));
    const done: Done[] = [];
    for (const { run, count } of each(0.3)) done.push(log(await run(node, `${seed}/first`, count)));
    const heapBefore = await settledHeap(node);
    for (const { run, count } of each(0.7)) done.push(log(await run(node, seed, count)));
    const heapAfter = await settledHeap(node);
    if (heapAfter - heapBefore > HEAP_GROWTH_MAX)
      throw new Error(`a leak: the heap of the node has grown from ${heapBefore} to ${heapAfter} bytes`);
    return { done, heapBefore, heapAfter };
  } finally {
    await node.stop();
  }
}

/** After every connection and subscription has ended. */
async function settledHeap(node: FuzzedNode): Promise<number> {
  for (const name of ['minato_sockets', 'minato_subscriptions'])
    await eventually(`${name} is 0`, async () => ((await node.metric(name)) === 0 ? true : undefined));
  return node.heapBytes();
}

export async function replayWire(target: string, input: string): Promise<void> {
  const node = await FuzzedNode.start(AUTHORS[0]!.pubkey);
  try {
    if (target === 'sockets') await replaySockets(node, input, (reply) => console.log(`reply ${reply}`));
    else if (target === 'http') console.log(`answer ${await replayHttp(node, input)}`);
    else if (target === 'raw-http') await sendRaw(node, input);
    else throw new Broken(target, input, 'an import is replayed with minato import');
  } finally {
    await node.stop();
  }
}
