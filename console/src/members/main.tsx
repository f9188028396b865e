/** The members' pages. */
import { RouterProvider } from '@tanstack/react-router';
import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import { Providers } from '../shared/providers.js';
import '../shared/texts.js';
import './members.css';
import './texts.js';
import { mustReconnect, reconnectHere } from './places.js';
import { router } from './router.js';

if (mustReconnect()) reconnectHere();
else
  createRoot(document.getElementById('root')!).render(
    <StrictMode>
      <Providers>
        <RouterProvider router={router} />
      </Providers>
    </StrictMode>,
  );
