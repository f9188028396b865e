/** What the relay has at hand of the store. Fed by the fan-out alone, in the order of the outbox. */
import type { MatchedEvent } from '../core/topic.js';
import { type HeldEvent, HeldEvents } from './held-events.js';
import { KeptAnswers } from './kept-answers.js';

export class Memory {
  readonly events = new HeldEvents();
  readonly answers = new KeptAnswers(this.events);

  onUpsert(community: number, held: HeldEvent, event: MatchedEvent): void {
    this.events.add(community, held);
    this.answers.onUpsert(community, held, event);
  }
  onDelete(community: number, id: string): void {
    this.events.delete(community, id);
  }
  /** When something changed that the outbox does not name row by row. */
  clear(): void {
    this.events.clear();
    this.answers.clear();
  }
}
