/**
 * Positions of the outbox as clients get them: encrypted, because a position says how much the whole node
 * writes, and valid for one community (I13). The nonce is derived from the content, so that any number of
 * them can be made with one key.
 */
import { createCipheriv, createDecipheriv, createHmac } from 'node:crypto';

const CIPHER = 'aes-256-gcm';
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const MARK_BYTES = 12;

export class PositionSeal {
  private readonly key: Buffer;
  private readonly nonceKey: Buffer;
  private readonly markKey: Buffer;

  /** `secret`: 32 bytes as hex, the same on every instance. */
  constructor(secret: string) {
    const derive = (use: string) => createHmac('sha256', Buffer.from(secret, 'hex')).update(use).digest();
    this.key = derive('position');
    this.nonceKey = derive('position nonce');
    this.markKey = derive('query');
  }

  seal(community: number, content: string): string {
    const about = Buffer.from(`${community}`);
    const nonce = createHmac('sha256', this.nonceKey).update(`${community}/${content}`).digest();
    const cipher = createCipheriv(CIPHER, this.key, nonce.subarray(0, NONCE_BYTES)).setAAD(about);
    const sealed = Buffer.concat([cipher.update(content, 'utf8'), cipher.final()]);
    return Buffer.concat([nonce.subarray(0, NONCE_BYTES), sealed, cipher.getAuthTag()]).toString('base64url');
  }

  /** Undefined if this node has not made it for this community. */
  open(community: number, text: string): string | undefined {
    const bytes = Buffer.from(text, 'base64url');
    if (bytes.length <= NONCE_BYTES + TAG_BYTES) return undefined;
    try {
      const decipher = createDecipheriv(CIPHER, this.key, bytes.subarray(0, NONCE_BYTES), {
        authTagLength: TAG_BYTES,
      })
        .setAAD(Buffer.from(`${community}`))
        .setAuthTag(bytes.subarray(-TAG_BYTES));
      const content = decipher.update(bytes.subarray(NONCE_BYTES, -TAG_BYTES), undefined, 'utf8');
      return content + decipher.final('utf8');
    } catch {
      return undefined;
    }
  }

  /** A short mark that is equal for equal texts, and says nothing about them. */
  markOf(text: string): string {
    return createHmac('sha256', this.markKey)
      .update(text)
      .digest()
      .subarray(0, MARK_BYTES)
      .toString('base64url');
  }
}
