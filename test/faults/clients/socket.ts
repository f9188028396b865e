/** A websocket of a client, through the link of an instance. It keeps nothing: each client handles frames. */
import WebSocket from 'ws';
import { SLUGS } from '../plan.js';

export type Frame = [string, ...unknown[]];
const OPEN_MS_MAX = 20_000;

export interface Handlers {
  onFrame(frame: Frame): void;
  onClose(): void;
}

export class Socket {
  isOpen = true;

  private constructor(private readonly ws: WebSocket) {}

  /** Rejects if it cannot connect. */
  static open(port: number, path: string, handlers: Handlers): Promise<Socket> {
    return new Promise((resolve, reject) => {
      const ws = new WebSocket(`ws://127.0.0.1:${port}${path}`, { handshakeTimeout: OPEN_MS_MAX });
      const socket = new Socket(ws);
      ws.on('message', (data) => handlers.onFrame(JSON.parse(String(data)) as Frame));
      ws.on('error', (error) => reject(error));
      ws.on('close', () => {
        socket.isOpen = false;
        handlers.onClose();
        reject(new Error('closed'));
      });
      ws.once('open', () => resolve(socket));
    });
  }

  send(message: unknown): void {
    if (this.isOpen) this.ws.send(JSON.stringify(message));
  }

  /** Reads no more. */
  pause(): void {
    this.ws.pause();
  }

  cut(): void {
    this.ws.terminate();
  }
}

/** The path of a community of the node. */
export const pathOf = (community: number) => (community === 0 ? '/' : `/c/${SLUGS[community]}`);
