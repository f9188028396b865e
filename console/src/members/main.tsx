/** The members' pages. */
import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import { Providers } from '../shared/providers.js';
import '../shared/texts.js';

createRoot(document.getElementById('root')!).render(
  <StrictMode>
    <Providers>{null}</Providers>
  </StrictMode>,
);
