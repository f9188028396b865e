/** All floods, in the order in which they are measured. */
import { EVENT_FLOODS } from './events.js';
import type { Flood } from './flood.js';
import { FRAME_FLOODS } from './frames.js';
import { HTTP_FLOODS } from './http.js';
import { QUERY_FLOODS } from './queries.js';

export const FLOODS: readonly Flood[] = [...EVENT_FLOODS, ...QUERY_FLOODS, ...FRAME_FLOODS, ...HTTP_FLOODS];
