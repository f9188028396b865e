/** The links of the fault tests break as they say. */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { eventually } from '../cli.js';
import { Link } from './link.js';

let server: Server;
let link: Link;
let accepted: Socket[];
let heard: string;

beforeEach(async () => {
  accepted = [];
  heard = '';
  server = createServer((socket) => {
    accepted.push(socket);
    socket.on('error', () => undefined);
    socket.on('data', (data) => {
      heard += String(data);
      socket.write(`echo ${data}`);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  link = await Link.start({ host: '127.0.0.1', port: (server.address() as AddressInfo).port });
});
afterEach(async () => {
  await link.stop();
  for (const socket of accepted) socket.destroy();
  server.close();
});

async function open(): Promise<{ socket: Socket; got: () => string; isClosed: () => boolean }> {
  const socket = connect(link.port, '127.0.0.1');
  socket.on('error', () => undefined);
  let got = '';
  let isClosed = false;
  socket.on('data', (data) => {
    got += String(data);
  });
  socket.on('close', () => {
    isClosed = true;
  });
  await once(socket, 'connect');
  return { socket, got: () => got, isClosed: () => isClosed };
}
const until = (what: string, look: () => boolean) => eventually(what, () => look() || undefined);

it('passes bytes both ways, and the end', async () => {
  const client = await open();
  client.socket.write('one');
  await until('the echo', () => client.got() === 'echo one');
  accepted[0]!.destroy();
  await until('the end', client.isClosed);
});

it('holds everything while it is stalled, and passes it afterwards', async () => {
  const client = await open();
  link.become('stalled');
  client.socket.write('one');
  const other = await open();
  other.socket.write('two');
  await until('both are connected', () => link.connections === 2);
  expect([heard, client.got(), other.got()]).toEqual(['', '', '']);
  link.become('open');
  await until('the echoes', () => client.got() === 'echo one' && other.got() === 'echo two');
});

it('loses answers: the server acts, the client hears nothing and is cut', async () => {
  const client = await open();
  link.become('answers-stalled');
  client.socket.write('one');
  await until('it arrives', () => heard === 'one');
  link.cut();
  await until('the cut', client.isClosed);
  expect(client.got()).toBe('');
});

it('deserts a client, which is not told, and serves new ones', async () => {
  const client = await open();
  await until('it is connected', () => accepted.length === 1);
  const ended = once(accepted[0]!, 'close');
  link.desert();
  await ended;
  const other = await open();
  other.socket.write('two');
  await until('the echo', () => other.got() === 'echo two');
  client.socket.write('one');
  expect([client.isClosed(), heard]).toEqual([false, 'two']);
  client.socket.destroy();
});

it('refuses, and passes slowly but completely', async () => {
  const client = await open();
  link.become('refused');
  await until('it is cut', client.isClosed);
  const refused = await open();
  await until('it is refused', refused.isClosed);
  link.become('slow');
  const slow = await open();
  slow.socket.write('x'.repeat(10_000));
  await until('all of it', () => heard.length === 10_000);
});
