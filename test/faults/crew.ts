/** The clients of a world: they live as long as the world, through all its faults, and know what they did. */
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { VerifiedEvent } from 'nostr-tools/pure';
import { CursorReader } from './clients/cursor-reader.js';
import { Http, type HttpAnswer } from './clients/http.js';
import { importFile } from './clients/importer.js';
import { Mirror } from './clients/mirror.js';
import { OutboxTail } from './clients/outbox-tail.js';
import { type Answer, Publisher } from './clients/publisher.js';
import { pathOf } from './clients/socket.js';
import { Watcher } from './clients/watcher.js';
import type { Faults } from './faults.js';
import { Gossip } from './gossip.js';
import { type Person, type Signer, topicIdOf } from './keys.js';
import type { Acts, Sent } from './model.js';
import {
  COMMUNITIES,
  clientLinkOf,
  HELD_WORD,
  INSTANCES,
  type Operation,
  type PlannedEvent,
  SHARED,
  SLUGS,
} from './plan.js';
import type { Violations } from './violations.js';
import type { World } from './world/world.js';

/** Operations are repeated for so long after the world is healed. */
const PATIENCE_MS = 150_000;
const CASES = '/v1/admin/moderation/cases';
const REQUESTS = '/v1/topic-subscription-requests';

export interface CrewOptions {
  readonly world: World;
  readonly faults: Faults;
  readonly signer: Signer;
  readonly events: readonly PlannedEvent[];
  readonly admin: Person;
  readonly violations: Violations;
  /** No fault is under way, and everything was ready once. */
  readonly isHealthy: () => boolean;
}

export class Crew {
  readonly http: Http;
  readonly mirror: Mirror;
  readonly tail: OutboxTail;
  readonly watchers: Watcher[];
  readonly cursorReaders: CursorReader[];
  /** Undefined in a world without a peer. */
  readonly gossip: Gossip | undefined;
  private readonly publishers: Publisher[][];
  private readonly answers = new Map<number, Answer[]>();
  private readonly imported = new Set<number>();
  private readonly removed = new Set<string>();
  private readonly restored = new Set<string>();
  private readonly erased = new Set<string>();
  /** Member and topic of approved requests. */
  readonly approved = new Set<string>();
  mirrorMustRebuild = false;

  constructor(private readonly options: CrewOptions) {
    const { world, violations, isHealthy, faults } = options;
    const port = (instance: number) => world.port(instance);
    const instances = Array.from({ length: INSTANCES }, (_, instance) => instance);
    this.http = new Http({ port, violations, isHealthy });
    this.mirror = new Mirror(this.http, options.admin, () => {
      this.mirrorMustRebuild = true;
    });
    this.tail = new OutboxTail(world.postgres);
    this.publishers = instances.map((instance) =>
      COMMUNITIES.map(
        (_, community) =>
          new Publisher({
            port: () => port(instance),
            path: pathOf(community),
            violations,
            isHealthy,
            onAccepted: () => faults.noteOk(),
          }),
      ),
    );
    const forged = new Set<string>();
    this.watchers = instances.flatMap((instance) =>
      COMMUNITIES.map(
        (_, community) =>
          new Watcher({
            port: () => port(instance),
            community,
            kinds: [0, 1, 10_002, 20_001, 30_023],
            violations,
            mayRepeat: ({ id }) => this.restored.has(id),
            isForged: (id) => forged.has(id),
            isInTime: () => faults.clocksAreRight && faults.isClear(clientLinkOf(instance)),
          }),
      ),
    );
    this.cursorReaders = [{ kinds: [1] }, { '#t': ['sea'] }].map(
      (filter) => new CursorReader(() => instances.map(port), { ...filter, limit: 5_000 }, violations),
    );
    this.forged = forged;
    const isForged = (id: string) => forged.has(id);
    this.gossip = world.hasPeer ? new Gossip({ world, violations, isHealthy, faults, isForged }) : undefined;
  }

  private readonly forged: Set<string>;

  /** Rules, the other community and the follower, before the first fault. */
  async setUp(): Promise<void> {
    const { admin } = this.options;
    const until = (isDone: (answer: HttpAnswer) => boolean) => ({ isDone, untilMs: 60_000 });
    const ask = (method: string, path: string, body: object, statuses: readonly number[]) =>
      this.http.insist(
        admin,
        { method, path, body, instance: 0 },
        until(({ status }) => statuses.includes(status)),
      );
    for (const slug of this.slugs.slice(1)) {
      await ask('POST', '/v1/admin/communities', { slug }, [201, 409]);
      await ask('PUT', `/c/${slug}/v1/admin/settings/topic.mode`, { value: 'open', version: 0 }, [200]);
    }
    const rule = { name: 'held', conditions: { kinds: [1], words: [HELD_WORD] }, action: 'hold' };
    for (const base of this.bases) {
      const rules = `${base}/v1/admin/moderation/rules`;
      const { body } = await ask('POST', rules, rule, [201]);
      await ask('POST', `${rules}/try`, { rule_id: body.rule_id }, [200]);
      await ask('PATCH', `${rules}/${body.rule_id}`, { enabled: true }, [200]);
    }
    await this.mirror.register(60_000);
    await this.gossip?.setUp();
  }

  private get slugs(): readonly string[] {
    return this.gossip === undefined ? COMMUNITIES : SLUGS;
  }

  /** The paths of the communities for requests over HTTP. */
  private get bases(): string[] {
    return this.slugs.map((slug, at) => (at === 0 ? '' : `/c/${slug}`));
  }

  private get allPublishers(): Publisher[] {
    return [...this.publishers.flat(), ...(this.gossip?.publishers ?? [])];
  }

  get unanswered(): string[] {
    return this.allPublishers.flatMap((one) => one.unanswered);
  }

  get sentFrames(): number {
    return this.allPublishers.reduce((sum, one) => sum + one.sent, 0);
  }

  /** Temporary refusals by their words. */
  get refusals(): Map<string, number> {
    const all = new Map<string, number>();
    for (const { refusals } of this.allPublishers)
      for (const [words, count] of refusals) all.set(words, (all.get(words) ?? 0) + count);
    return all;
  }

  /** Does one operation, however often it has to be repeated. */
  async perform(operation: Operation): Promise<void> {
    await delay(operation.atMs);
    switch (operation.do) {
      case 'post':
        await Promise.all(operation.instances.map((instance) => this.post(operation.event, instance)));
        return;
      case 'remove':
      case 'restore':
        return this.moderate(operation.do, operation.event, operation.instance);
      case 'erase':
        return this.erase(operation.author, operation.instance);
      case 'request-topic':
        return this.requestTopic(operation);
      case 'import':
        return this.importAll(operation.events, operation.killAfterMs);
    }
  }

  /** Everything with a final answer. */
  get sent(): Sent[] {
    const { events, signer } = this.options;
    return events.flatMap(({ number, community, isForged = false, isHeld = false }) => {
      const answers = this.answers.get(number);
      if (answers === undefined && !this.imported.has(number)) return [];
      const best = answers?.find(({ accepted }) => accepted) ??
        answers?.[0] ?? { accepted: true, message: 'imported' };
      return [{ community, event: signer.sign(number), isForged, isHeld, ...best }];
    });
  }

  get acts(): Acts {
    return { removed: this.removed, erased: this.erased };
  }

  nameOf(id: string): string {
    const found = this.sent.find(({ event }) => event.id === id);
    if (found === undefined) return id;
    const { event, message, accepted } = found;
    return `${id} kind ${event.kind} at ${event.created_at} "${event.content}" (${accepted} "${message}")`;
  }

  async stop(): Promise<void> {
    const watchers = [...this.watchers, ...(this.gossip?.watchers ?? [])];
    await Promise.all(
      [...this.allPublishers, ...watchers, ...this.cursorReaders, this.tail].map((one) => one.stop()),
    );
  }

  private event(number: number): VerifiedEvent {
    const event = this.options.signer.sign(number);
    if (this.options.events[number]!.isForged) this.forged.add(event.id);
    return event;
  }

  private async post(number: number, instance: number): Promise<void> {
    const { community, isForged } = this.options.events[number]!;
    const event = this.event(number);
    const publisher =
      community === SHARED ? this.gossip!.publishers[instance] : this.publishers[instance]![community];
    const answer = await publisher!.publish(event);
    this.answers.set(number, [...(this.answers.get(number) ?? []), answer]);
    if (isForged && answer.accepted)
      this.options.violations.add('I2', `a forged event was accepted: ${event.id} "${answer.message}"`);
  }

  private async moderate(action: 'remove' | 'restore', number: number, instance: number): Promise<void> {
    const { id } = this.event(number);
    const { admin } = this.options;
    // Until the action is done, either state is right.
    if (action === 'restore') this.restored.add(id);
    // It was never stored: its deletion came first.
    const wasRefused = () => this.answers.get(number)?.every(({ accepted }) => !accepted) === true;
    const opened = await this.http.insist(
      admin,
      { method: 'POST', path: CASES, body: { event_id: id }, instance },
      { isDone: ({ status }) => status === 201 || (status === 404 && wasRefused()), untilMs: PATIENCE_MS },
    );
    if (opened.status === 404) return;
    const acted = await this.http.insist(
      admin,
      { method: 'POST', path: `${CASES}/${opened.body.case_id}/actions`, body: { action }, instance },
      { isDone: ({ status }) => status === 201 || status === 409, untilMs: PATIENCE_MS },
    );
    // 409: it was done by a request whose answer was lost, or the event is hidden for another reason.
    if (acted.status === 409 && !/NOT_DONE|STATUS_CONFLICT/.test(String(acted.body.code)))
      throw new Error(`${action} ${id}: ${JSON.stringify(acted.body)}`);
    if (action === 'remove') this.removed.add(id);
    else this.removed.delete(id);
  }

  private async erase(author: number, instance: number): Promise<void> {
    const { pubkey } = this.options.signer.person(author);
    this.erased.add(pubkey);
    for (const base of this.bases)
      await this.http.insist(
        this.options.admin,
        { method: 'POST', path: `${base}/v1/admin/erasures`, body: { pubkey, grace_days: 0 }, instance },
        { isDone: ({ status }) => status === 202 || status === 409, untilMs: PATIENCE_MS },
      );
  }

  private async requestTopic({
    member,
    topic,
    approve,
    instance,
  }: Extract<Operation, { do: 'request-topic' }>): Promise<void> {
    const person = this.options.signer.person(member);
    const topicId = topicIdOf(topic);
    const asked = await this.http.insist(
      person,
      { method: 'POST', path: REQUESTS, body: { topic_id: topicId }, instance },
      { isDone: ({ status }) => status === 201 || status === 409, untilMs: PATIENCE_MS },
    );
    if (asked.status === 409 && asked.body.code === 'ALREADY_SUBSCRIBED') return;
    const listed = await this.http.insist(
      person,
      { method: 'GET', path: REQUESTS, instance },
      { isDone: ({ status }) => status === 200, untilMs: PATIENCE_MS },
    );
    const items = listed.body.items as { request_id: string; topic_id: string; status: string }[];
    const found = items.find((one) => one.topic_id === topicId && one.status === 'pending');
    if (found === undefined) throw new Error(`no pending request: ${JSON.stringify(asked.body)}`);
    const verb = approve ? 'approve' : 'reject';
    const path = `/v1/admin/topic-subscription-requests/${found.request_id}/${verb}`;
    await this.http.insist(
      this.options.admin,
      { method: 'POST', path, body: {}, instance },
      { isDone: ({ status }) => status === 200, untilMs: PATIENCE_MS },
    );
    if (approve) this.approved.add(`${person.pubkey} ${topicId}`);
  }

  private async importAll(numbers: readonly number[], killAfterMs: number | undefined): Promise<void> {
    const { world, events } = this.options;
    for (const [community, slug] of COMMUNITIES.entries()) {
      const chosen = numbers.filter((number) => events[number]!.community === community);
      if (chosen.length === 0) continue;
      await importFile({
        file: join(world.disk.beside, `import-${numbers[0]}-${slug}.jsonl`),
        community: slug,
        events: chosen.map((number) => this.event(number)),
        env: world.commandEnv,
        killAfterMs,
        untilMs: PATIENCE_MS,
      });
      for (const number of chosen) this.imported.add(number);
    }
  }
}
