/**
 * The yardstick's server, a separate process. It answers each message with the same frames, with the socket
 * corked around the sends, and does nothing else. Its rate is the most that a relay on `ws` can reach.
 * Arguments: frames of one answer, bytes of a frame. It sends its port to its parent.
 */
import { WebSocketServer } from 'ws';

const [answerFrames, frameBytes] = process.argv.slice(2).map(Number) as [number, number];
const frame = Buffer.alloc(frameBytes, 'x');
const text = { binary: false };

const server = new WebSocketServer({ port: 0, host: '127.0.0.1', perMessageDeflate: false });
server.on('connection', (socket, request) => {
  socket.on('message', () => {
    request.socket.cork();
    for (let sent = 0; sent < answerFrames; sent++) socket.send(frame, text);
    request.socket.uncork();
  });
});
server.on('listening', () => {
  const address = server.address();
  process.send!(typeof address === 'object' && address !== null ? address.port : 0);
});
process.on('disconnect', () => process.exit());
