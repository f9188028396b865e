/** An address that moves from one server to another, as that of a load balancer or a failover manager. */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';

export class MovingAddress {
  private readonly open = new Set<Socket>();

  private constructor(
    private readonly server: Server,
    private target: number,
  ) {
    server.on('connection', (socket: Socket) => this.forward(socket));
  }

  static async start(target: number): Promise<MovingAddress> {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    return new MovingAddress(server, target);
  }

  get port(): number {
    return (this.server.address() as AddressInfo).port;
  }

  /** New connections go there, and those that are open are cut. */
  moveTo(target: number): void {
    this.target = target;
    for (const socket of this.open) socket.destroy();
  }

  stop(): void {
    this.server.close();
    for (const socket of this.open) socket.destroy();
  }

  private forward(socket: Socket): void {
    const other = connect(this.target, '127.0.0.1');
    for (const each of [socket, other]) {
      this.open.add(each);
      each.on('error', () => undefined);
      each.once('close', () => {
        this.open.delete(each);
        socket.destroy();
        other.destroy();
      });
    }
    socket.pipe(other).pipe(socket);
  }
}
