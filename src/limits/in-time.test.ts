import { once } from 'node:events';
import { type AddressInfo, createServer, Socket } from 'node:net';
import { expect, it } from 'vitest';
import { inTime, isNoAnswer, NoAnswer } from './in-time.js';

it('an answer that is late is an error that names the peer', async () => {
  const never = new Promise<never>(() => undefined);
  await expect(inTime(never, 1, 'Redis')).rejects.toThrow('Redis did not answer within 1 ms');
});

it('an answer that arrived while this process was busy is accepted', async () => {
  const server = createServer((socket) => socket.end('here')).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const socket = new Socket();
  const answer = inTime(
    once(socket, 'data').then(([data]) => String(data)),
    50,
    'it',
  );
  socket.connect((server.address() as AddressInfo).port, '127.0.0.1');
  await Promise.all([once(socket, 'connect'), once(server, 'connection')]);
  // Long past the deadline, with the answer in the socket already.
  for (const until = Date.now() + 200; Date.now() < until; );
  expect(await answer).toBe('here');
  server.close();
});

it('an error of the peer is passed on unchanged', async () => {
  const failed = new RangeError('too much');
  await expect(inTime(Promise.reject(failed), 1_000, 'it')).rejects.toBe(failed);
});

it('NoAnswer is recognised inside other errors, and has the code of its cause', () => {
  const broken = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' });
  const none = new NoAnswer('nobody there', broken);
  expect([isNoAnswer(new Error('outer', { cause: none })), none.code]).toEqual([true, 'ECONNREFUSED']);
  expect([isNoAnswer(broken), isNoAnswer(undefined)]).toEqual([false, false]);
});
