/** The frame of the pages about oneself: their tabs, and the sign-in for those who are not signed in. */
import { Paper } from '@mantine/core';
import { useLocation } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import { useT } from '../../shared/i18n.js';
import { useMember } from '../session.js';
import { Head } from './head.js';
import { Go } from './link.js';
import { SignInFirst } from './sign-in.js';

const TABS = [
  ['/me', 'home:mine'],
  ['/me/terms', 'home:terms'],
  ['/me/moderation', 'home:decisions'],
  ['/me/data', 'home:myData'],
] as const;

interface OwnProps {
  readonly title: string;
  readonly about: string;
  readonly children: ReactNode;
}

export function Own({ title, about, children }: OwnProps) {
  const t = useT();
  const { pathname } = useLocation();
  const member = useMember();
  return (
    <>
      <nav aria-label={t('home:me')} className="tabs">
        {TABS.map(([path, key]) => (
          <Go key={path} to={path} className="tab" aria-current={pathname === path ? 'page' : undefined}>
            {t(key)}
          </Go>
        ))}
      </nav>
      <Head title={title} about={about} />
      {member === undefined ? (
        <Paper withBorder p="lg">
          <SignInFirst />
        </Paper>
      ) : (
        children
      )}
    </>
  );
}
