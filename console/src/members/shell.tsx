/** The frame of the members' pages: the name of the community, the ways through it, and who is signed in. */
import { ActionIcon, Anchor, Box, Button, Container, Divider, Group, Menu, Stack, Text } from '@mantine/core';
import { useHotkeys } from '@mantine/hooks';
import {
  IconFileText,
  IconGavel,
  IconKey,
  IconLogout,
  IconSearch,
  IconShieldLock,
  IconTopologyStar3,
  IconUserCircle,
} from '@tabler/icons-react';
import { Outlet, useLocation } from '@tanstack/react-router';
import { Person } from '../shared/components/person.js';
import { Switches } from '../shared/components/switches.js';
import { useT } from '../shared/i18n.js';
import { iconUrl } from '../shared/place.js';
import { useAbout } from './community.js';
import { Head } from './parts/head.js';
import { Go, useGo } from './parts/link.js';
import { SignInProvider, useSignIn } from './parts/sign-in.js';
import { useName } from './profiles.js';
import { type Member, signOut, useMember } from './session.js';

const WIDTH = 860;

export function Shell() {
  const t = useT();
  const go = useGo();
  useHotkeys([['/', () => go('/search')]]);
  return (
    <SignInProvider>
      <Anchor href="#page" className="skip">
        {t('home:skip')}
      </Anchor>
      <Header />
      <Container component="main" id="page" tabIndex={-1} size={WIDTH} px="md" py="xl">
        <Outlet />
      </Container>
      <Footer />
    </SignInProvider>
  );
}

function Header() {
  const t = useT();
  const about = useAbout();
  const member = useMember();
  const go = useGo();
  const open = useSignIn();
  return (
    <Box component="header">
      <Container size={WIDTH} px="md">
        <Group h={60} justify="space-between" wrap="nowrap" gap="xs">
          <Go to="/" className="plain-link">
            <Group gap="xs" wrap="nowrap">
              <img src={iconUrl} width={28} height={28} alt="" />
              <Text fw={700} truncate maw={{ base: 96, xs: 200, sm: 320 }} className="name">
                {about.data?.name ?? 'Minato'}
              </Text>
            </Group>
          </Go>
          <Group gap={6} wrap="nowrap">
            <ActionIcon
              variant="subtle"
              color="gray"
              size="lg"
              aria-label={t('home:search')}
              onClick={() => go('/search')}
            >
              <IconSearch size={19} />
            </ActionIcon>
            <Switches />
            {member === undefined ? (
              <Button size="xs" onClick={open} leftSection={<IconKey size={15} />} visibleFrom="xs">
                {t('home:signIn')}
              </Button>
            ) : (
              <Who member={member} />
            )}
            {member === undefined && (
              <ActionIcon size="md" hiddenFrom="xs" aria-label={t('home:signIn')} onClick={open}>
                <IconKey size={16} />
              </ActionIcon>
            )}
          </Group>
        </Group>
      </Container>
      <Divider />
    </Box>
  );
}

const OWN_PAGES = [
  ['/me', 'home:mine', IconTopologyStar3],
  ['/me/terms', 'home:terms', IconFileText],
  ['/me/moderation', 'home:decisions', IconGavel],
  ['/me/data', 'home:myData', IconShieldLock],
] as const;

function Who({ member }: { readonly member: Member }) {
  const t = useT();
  const go = useGo();
  const name = useName(member.pubkey);
  return (
    <Menu position="bottom-end" withArrow>
      <Menu.Target>
        <ActionIcon variant="default" size="md" aria-label={t('home:me')}>
          <IconUserCircle size={18} />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label>
          <Person pubkey={member.pubkey} name={name} />
        </Menu.Label>
        {OWN_PAGES.map(([path, key, Icon]) => (
          <Menu.Item key={path} leftSection={<Icon size={16} />} onClick={() => go(path)}>
            {t(key)}
          </Menu.Item>
        ))}
        <Menu.Divider />
        <Menu.Item leftSection={<IconLogout size={16} />} onClick={signOut}>
          {t('home:signOut')}
        </Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}

function Footer() {
  const t = useT();
  const { data } = useAbout();
  return (
    <Box component="footer">
      <Divider />
      <Container size={WIDTH} px="md" py="lg">
        <Group justify="space-between" gap="xs">
          <Text size="xs" c="dimmed">
            {t('home:runs', { version: data?.version ?? '' })}
          </Text>
          <Group gap="md">
            {data?.contact !== undefined && (
              <Text size="xs" c="dimmed" className="text">
                {t('home:contact', { contact: data.contact })}
              </Text>
            )}
            <Anchor href="/docs" size="xs">
              {t('home:apiDocs')}
            </Anchor>
          </Group>
        </Group>
      </Container>
    </Box>
  );
}

export function NotFound() {
  const t = useT();
  const { pathname } = useLocation();
  return (
    <Stack align="flex-start">
      <Head title={t('home:notFound')} about={t('home:notFoundAbout', { path: pathname })} />
      <Go to="/">{t('home:toStart')}</Go>
    </Stack>
  );
}
