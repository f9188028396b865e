/** Texts of the members' pages. */
import { defineTexts } from '../shared/i18n.js';
import { en } from './texts-en.js';
import { ja } from './texts-ja.js';

export const texts = defineTexts('members', { en, ja });
