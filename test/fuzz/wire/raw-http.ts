/** Bytes that are not quite HTTP, over a TCP connection: each gets a 4xx or an end, and no other harm. */
import { once } from 'node:events';
import { connect } from 'node:net';
import { Dice } from '../../../src/demo/rules-dice.js';
import { bytes, oddText } from '../make/values.js';
import { mutate } from '../mutate.js';
import { Broken, type Done } from '../target.js';
import type { FuzzedNode } from './node.js';

const LINES = 4;
const ANSWER_MS_MAX = 20_000;
const JSON_TYPE = 'Content-Type: application/json';
const END = 'Connection: close';
const request = (...lines: readonly string[]) => lines.join('\r\n');
const CORPUS = [
  request('GET / HTTP/1.1', 'Host: localhost', END, '', ''),
  request(
    'POST /v1/auth/challenge HTTP/1.1',
    'Host: localhost',
    JSON_TYPE,
    'Content-Length: 2',
    END,
    '',
    '{}',
  ),
  request(
    'POST /v1/reports HTTP/1.1',
    'Host: localhost',
    'Transfer-Encoding: chunked',
    JSON_TYPE,
    END,
    '',
    '2',
    '{}',
    '0',
    '',
    '',
  ),
  request(
    'GET / HTTP/1.1',
    'Host: localhost',
    'Connection: Upgrade',
    'Upgrade: websocket',
    'Sec-WebSocket-Version: 13',
    'Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==',
    '',
    '',
  ),
  request('GET /metrics HTTP/1.0', '', ''),
];

export async function runRawHttp(node: FuzzedNode, seed: string, inputs: number): Promise<Done> {
  const began = performance.now();
  const share = Math.ceil(inputs / LINES);
  const line = async (at: number) => {
    const dice = new Dice(`${seed}/raw ${at}`);
    for (let done = 0; done < share; done += 1) await sendRaw(node, make(dice));
  };
  await Promise.all(Array.from({ length: LINES }, (_, at) => line(at)));
  return {
    target: 'raw-http',
    inputs: share * LINES,
    seconds: (performance.now() - began) / 1_000,
    notes: {},
  };
}

function make(dice: Dice): string {
  if (dice.chance(0.1)) return bytes(dice, 200);
  if (dice.chance(0.2))
    return dice.pick(CORPUS).replace(/\r\n\r\n/, `\r\n${oddText(dice, 10)}: ${oddText(dice)}\r\n\r\n`);
  return mutate(dice, dice.pick(CORPUS), CORPUS);
}

export async function sendRaw(node: FuzzedNode, input: string): Promise<void> {
  const socket = connect(node.port, '127.0.0.1');
  const chunks: Buffer[] = [];
  socket.on('error', () => undefined);
  socket.on('data', (chunk) => chunks.push(chunk));
  await once(socket, 'connect').catch(() => undefined);
  const closed = once(socket, 'close');
  // The end of what is sent: whatever is incomplete stays so.
  socket.end(Buffer.from(input, 'latin1'));
  const timer = setTimeout(() => socket.destroy(), ANSWER_MS_MAX);
  await closed;
  clearTimeout(timer);
  node.check();
  const answer = Buffer.concat(chunks).toString('latin1');
  if (answer === '') return;
  const [, status] = /^HTTP\/1\.[01] (\d{3}) /.exec(answer) ?? [];
  if (status === undefined)
    throw new Broken('raw-http', input, `an answer that is not HTTP: ${answer.slice(0, 100)}`);
  if (Number(status) >= 500) throw new Broken('raw-http', input, `a status of ${status}`);
}
