/** The relay information document (NIP-11), generated from the settings that are enforced. */
import type { Community } from '../communities/communities.js';
import type { Settings } from '../communities/rules-settings.js';
import { SOFTWARE_URL, SOFTWARE_VERSION } from '../node/version.js';

const NIPS = [1, 5, 9, 11, 13, 17, 32, 40, 42, 43, 45, 50, 56, 59, 62, 67, 70, 77, 85];
const NEGENTROPY_NIP = 77;
const TOPICS_NAMED_MAX = 100;
/** Management (NIP-86) and signed requests (NIP-98) are answered by the API. */
const API_NIPS = [86, 98];

const ABOUT_MODE: Record<Settings['topic.mode'], string> = {
  required: 'Every event names one of the topics in a t tag and every filter in #t, a few kinds aside.',
  default: 'Any client can use it; what names no topic of this relay belongs to the global one.',
  open: 'Any client can use it.',
};

export function supportedNips(settings: Settings, hasApi: boolean): readonly number[] {
  const isSyncOff = settings['limits.negentropySessionsMax'] === 0;
  const all = hasApi ? [...NIPS, ...API_NIPS] : NIPS;
  return isSyncOff ? all.filter((nip) => nip !== NEGENTROPY_NIP) : all;
}

/** Topics that anybody may use. The global one is among the first, because it is the oldest. */
export function publicTopics({ topics }: Pick<Community, 'topics'>): string[] {
  const open: string[] = [];
  for (const [topic, { enabled, public: isPublic }] of topics) {
    if (enabled && isPublic && open.push(topic) === TOPICS_NAMED_MAX) break;
  }
  return open;
}

/** Only what is configured is listed. */
function given(fields: Record<string, string | undefined>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(fields).filter((field): field is [string, string] => (field[1] ?? '') !== ''),
  );
}

export type Described = Pick<Community, 'settings' | 'topics' | 'self'>;

/** `ticket`: with it other nodes join the gossip of this one. */
export function relayInformation(community: Described, hasApi: boolean, ticket?: string | undefined) {
  const { settings, self } = community;
  const behind = settings['limits.createdBehindSecondsMax'];
  return {
    name: settings['relay.name'],
    description: settings['relay.description'],
    ...given({
      pubkey: settings['relay.pubkey'],
      self,
      contact: settings['relay.contact'],
      icon: settings['relay.icon'],
      banner: settings['relay.banner'],
      terms_of_service: settings['relay.termsOfService'],
      privacy_policy: settings['relay.privacyPolicy'],
    }),
    supported_nips: supportedNips(settings, hasApi),
    software: SOFTWARE_URL,
    version: SOFTWARE_VERSION,
    topics: {
      mode: settings['topic.mode'],
      about: ABOUT_MODE[settings['topic.mode']],
      public: publicTopics(community),
    },
    // docs/cursors.md: a filter may have a `cursor`, which is valid for these days.
    cursor: { version: 1, days: settings['retention.outboxDays'] },
    ...(ticket === undefined ? {} : { p2p: { ticket } }),
    limitation: {
      max_message_length: settings['limits.messageBytesMax'],
      max_subscriptions: settings['limits.subscriptionsMax'],
      max_filters: settings['limits.filtersMax'],
      max_limit: settings['limits.limitMax'],
      default_limit: Math.min(settings['limits.limitDefault'], settings['limits.limitMax']),
      max_subid_length: settings['limits.subscriptionIdLengthMax'],
      max_event_tags: settings['limits.tagsMax'],
      max_event_bytes: settings['limits.eventBytesMax'],
      max_list_bytes: Math.max(settings['limits.eventBytesMax'], settings['limits.listBytesMax']),
      min_pow_difficulty: settings['limits.powBitsMin'],
      auth_required: settings['auth.mode'] === 'required',
      payment_required: false,
      restricted_writes: settings['topic.mode'] === 'required' || settings['auth.mode'] === 'required',
      created_at_upper_limit: settings['limits.createdAheadSecondsMax'],
      ...(behind === 0 ? {} : { created_at_lower_limit: behind }),
    },
  };
}
