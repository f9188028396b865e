import { once } from 'node:events';
import { type AddressInfo, createServer, Socket } from 'node:net';
import { expect, it } from 'vitest';
import { inTime, isNoAnswer, NoAnswer } from './in-time.js';

it('an answer that does not come in time is an error that names who did not answer', async () => {
  const never = new Promise<never>(() => undefined);
  await expect(inTime(never, 1, 'Redis')).rejects.toThrow('Redis did not answer within 1 ms');
});

it('an answer that came while this process was busy counts', async () => {
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

it('the error of the one who was asked stays as it is', async () => {
  const failed = new RangeError('too much');
  await expect(inTime(Promise.reject(failed), 1_000, 'it')).rejects.toBe(failed);
});

it('no answer is known as such inside other errors, with its code', () => {
  const broken = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' });
  const none = new NoAnswer('nobody there', broken);
  expect([isNoAnswer(new Error('outer', { cause: none })), none.code]).toEqual([true, 'ECONNREFUSED']);
  expect([isNoAnswer(broken), isNoAnswer(undefined)]).toEqual([false, false]);
});
