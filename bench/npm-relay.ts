/**
 * The peer's process: `@nostr-relay/core` with its SQLite repository and its validator, combined as in its
 * documentation, with the default settings. Arguments: the folder of the installed packages, the database
 * file. It sends its port to its parent.
 */
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { type WebSocket, WebSocketServer } from 'ws';

interface Packages {
  readonly EventRepositorySqlite: new (file: string) => { init(): Promise<void> };
  readonly NostrRelay: new (
    repository: object,
  ) => {
    handleConnection(client: WebSocket): void;
    handleDisconnect(client: WebSocket): void;
    handleMessage(client: WebSocket, message: unknown): Promise<unknown>;
  };
  readonly Validator: new () => { validateIncomingMessage(data: unknown): Promise<unknown> };
}

const [installed, file] = process.argv.slice(2) as [string, string];
const load = createRequire(join(installed, 'package.json'));
const packages = {
  ...load('@nostr-relay/core'),
  ...load('@nostr-relay/event-repository-sqlite'),
  ...load('@nostr-relay/validator'),
} as Packages;

const repository = new packages.EventRepositorySqlite(file);
await repository.init();
const relay = new packages.NostrRelay(repository);
const validator = new packages.Validator();

const server = new WebSocketServer({ port: 0, host: '127.0.0.1', perMessageDeflate: false });
server.on('connection', (socket) => {
  relay.handleConnection(socket);
  socket.on('message', async (data) => {
    try {
      await relay.handleMessage(socket, await validator.validateIncomingMessage(data));
    } catch (error) {
      socket.send(JSON.stringify(['NOTICE', (error as Error).message]));
    }
  });
  socket.on('close', () => relay.handleDisconnect(socket));
  socket.on('error', () => undefined);
});
server.on('listening', () => {
  const address = server.address();
  process.send!(typeof address === 'object' && address !== null ? address.port : 0);
});
process.on('disconnect', () => process.exit());
