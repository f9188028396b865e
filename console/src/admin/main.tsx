/** The operators' console. */
import { RouterProvider } from '@tanstack/react-router';
import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import { adminBase } from '../shared/place.js';
import { Providers } from '../shared/providers.js';
import '../shared/texts.js';
import { router } from './router.js';
import { SessionGate } from './session.js';
import { Setup } from './setup.js';

const isSetup = location.pathname === `${adminBase}/setup`;

createRoot(document.getElementById('root')!).render(
  <StrictMode>
    <Providers>
      {isSetup ? (
        <Setup />
      ) : (
        <SessionGate>
          <RouterProvider router={router} />
        </SessionGate>
      )}
    </Providers>
  </StrictMode>,
);
