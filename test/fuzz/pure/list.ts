/** The pure targets. */
import type { PureTarget } from '../target.js';
import { cursorTexts } from './cursors.js';
import { events } from './events.js';
import { files, gossip } from './files.js';
import { filters } from './filters.js';
import { frames } from './frames.js';
import { negentropy } from './negentropy.js';
import { requests } from './requests.js';
import { settingValues } from './settings.js';
import { texts } from './texts.js';

export const PURE_TARGETS: readonly PureTarget[] = [
  frames,
  events,
  filters,
  negentropy,
  cursorTexts,
  requests,
  settingValues,
  texts,
  files,
  gossip,
];
