/** The relay information document (NIP-11), generated from the settings that are enforced. */
import type { Settings } from '../core/settings.js';
import { SOFTWARE_VERSION } from '../version.js';

const NIPS = [1, 9, 11, 13, 40, 42, 45, 50, 56, 62, 70];
/** Management (NIP-86) is answered by the API. */
const API_NIPS = [86];

export function supportedNips(hasApi: boolean): readonly number[] {
  return hasApi ? [...NIPS, ...API_NIPS] : NIPS;
}

export function relayInformation(settings: Settings, hasApi: boolean) {
  const behind = settings['limits.createdBehindSecondsMax'];
  return {
    name: settings['relay.name'],
    description: settings['relay.description'],
    ...(settings['relay.pubkey'] === '' ? {} : { pubkey: settings['relay.pubkey'] }),
    ...(settings['relay.contact'] === '' ? {} : { contact: settings['relay.contact'] }),
    ...(settings['relay.icon'] === '' ? {} : { icon: settings['relay.icon'] }),
    supported_nips: supportedNips(hasApi),
    software: 'minato',
    version: SOFTWARE_VERSION,
    limitation: {
      max_message_length: settings['limits.messageBytesMax'],
      max_subscriptions: settings['limits.subscriptionsMax'],
      max_filters: settings['limits.filtersMax'],
      max_limit: settings['limits.limitMax'],
      default_limit: Math.min(settings['limits.limitDefault'], settings['limits.limitMax']),
      max_subid_length: settings['limits.subscriptionIdLengthMax'],
      max_event_tags: settings['limits.tagsMax'],
      max_event_bytes: settings['limits.eventBytesMax'],
      min_pow_difficulty: settings['limits.powBitsMin'],
      auth_required: settings['auth.mode'] === 'required',
      payment_required: false,
      restricted_writes: settings['topic.mode'] !== 'open' || settings['auth.mode'] === 'required',
      created_at_upper_limit: settings['limits.createdAheadSecondsMax'],
      ...(behind === 0 ? {} : { created_at_lower_limit: behind }),
    },
  };
}
