/**
 * The sink, a separate process. It accepts every connection, reads everything and discards it. A WebSocket
 * gets its handshake and a challenge, a request gets a small answer, so that the attacker continues. It shows
 * what a flood costs the machine without a node. It sends its port to its parent.
 */
import { createHash } from 'node:crypto';
import { createServer } from 'node:http';

const WEBSOCKET_GUID = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
const CHALLENGE = Buffer.from(`["AUTH","${'0'.repeat(32)}"]`);
const CHALLENGE_FRAME = Buffer.concat([Buffer.from([0x81, CHALLENGE.length]), CHALLENGE]);

const server = createServer(
  { requestTimeout: 0, headersTimeout: 0, keepAliveTimeout: 0 },
  (request, response) => {
    response.on('error', () => undefined);
    response.end('{}');
    request.on('error', () => undefined);
    request.resume();
  },
);
server.on('upgrade', (request, socket) => {
  socket.on('error', () => undefined);
  const key = `${request.headers['sec-websocket-key']}${WEBSOCKET_GUID}`;
  const accept = createHash('sha1').update(key).digest('base64');
  socket.write(
    'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n' +
      `Sec-WebSocket-Accept: ${accept}\r\n\r\n`,
  );
  socket.write(CHALLENGE_FRAME);
  socket.resume();
});
server.on('clientError', (_, socket) => socket.destroy());
server.listen(0, '127.0.0.1', () => {
  const address = server.address();
  process.send!(typeof address === 'object' && address !== null ? address.port : 0);
});
process.on('disconnect', () => process.exit());
