/**
 * Sign-in by an extension, a remote signer, or a one-time code. The remote signer has an address of its own
 * (`/admin/remote`), because that page alone may connect to other relays.
 */
import { Anchor, Button, Center, Code, Paper, Stack, Tabs, Text, TextInput, Title } from '@mantine/core';
import { IconKey, IconPlugConnected, IconTerminal2 } from '@tabler/icons-react';
import { useMutation } from '@tanstack/react-query';
import { type ReactNode, useEffect, useState } from 'react';
import { Failure } from '../shared/components/states.js';
import { Switches } from '../shared/components/switches.js';
import { useT } from '../shared/i18n.js';
import { adminBase } from '../shared/place.js';
import { extensionSigner, hasExtension } from '../shared/signers.js';
import { RemoteForm } from './remote-form.js';
import { type Session, signInByCode, signInWith } from './session.js';
import './texts.js';

const isRemotePage = () => location.pathname === `${adminBase}/remote`;

interface SignInProps {
  readonly onDone: (session: Session) => void;
}

export function SignIn({ onDone }: SignInProps) {
  const t = useT();
  return (
    <Entrance title={t('admin:signIn')} about={t('admin:signInAbout')}>
      {isRemotePage() ? <Remote /> : <Ways onDone={onDone} />}
    </Entrance>
  );
}

interface EntranceProps {
  readonly title: string;
  readonly about: string;
  readonly children: ReactNode;
  readonly width?: number;
}

/** The frame of the pages for those who are not signed in yet. */
export function Entrance({ title, about, children, width = 440 }: EntranceProps) {
  useEffect(() => {
    document.title = `${title} · Minato`;
  }, [title]);
  return (
    <Center mih="100vh" p="md" component="main">
      <Stack w="100%" maw={width}>
        <Paper withBorder shadow="sm" p="xl" radius="lg">
          <Title order={1} size="h3">
            {title}
          </Title>
          <Text c="dimmed" size="sm" mb="lg">
            {about}
          </Text>
          {children}
        </Paper>
        <Center>
          <Switches />
        </Center>
      </Stack>
    </Center>
  );
}

function Ways({ onDone }: SignInProps) {
  const t = useT();
  return (
    <Tabs defaultValue={location.hash.startsWith('#code=') ? 'code' : 'extension'} keepMounted={false}>
      <Tabs.List mb="md" grow>
        <Tabs.Tab value="extension" leftSection={<IconKey size={16} />}>
          {t('admin:withExtension')}
        </Tabs.Tab>
        <Tabs.Tab value="code" leftSection={<IconTerminal2 size={16} />}>
          {t('admin:withCode')}
        </Tabs.Tab>
      </Tabs.List>
      <Tabs.Panel value="extension">
        <Extension onDone={onDone} />
      </Tabs.Panel>
      <Tabs.Panel value="code">
        <ByCode onDone={onDone} />
      </Tabs.Panel>
      <Button
        mt="md"
        fullWidth
        variant="default"
        component="a"
        href={`${adminBase}/remote`}
        leftSection={<IconPlugConnected size={16} />}
      >
        {t('admin:withRemote')}
      </Button>
    </Tabs>
  );
}

function Extension({ onDone }: SignInProps) {
  const t = useT();
  const entering = useMutation({
    mutationFn: () => signInWith(extensionSigner()),
    onSuccess: onDone,
    meta: { quiet: true },
  });
  if (!hasExtension()) return <Text size="sm">{t('admin:noExtension')}</Text>;
  return (
    <Stack>
      <Text size="sm">{t('admin:extensionAbout')}</Text>
      {entering.isError && <Failure error={entering.error} />}
      <Button onClick={() => entering.mutate()} loading={entering.isPending}>
        {t('admin:signIn')}
      </Button>
    </Stack>
  );
}

function ByCode({ onDone }: SignInProps) {
  const t = useT();
  const [code, setCode] = useState(() => codeInAddress('code'));
  const entering = useMutation({
    mutationFn: () => signInByCode(code.trim()),
    onSuccess: onDone,
    meta: { quiet: true },
  });
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (code.trim() !== '') entering.mutate();
      }}
    >
      <Stack>
        <Text size="sm">{t('admin:codeAbout')}</Text>
        <Code block>npx minato operators link</Code>
        <TextInput
          label={t('admin:code')}
          value={code}
          onChange={(event) => setCode(event.currentTarget.value)}
          autoComplete="one-time-code"
        />
        {entering.isError && <Failure error={entering.error} />}
        <Button type="submit" loading={entering.isPending} disabled={code.trim() === ''}>
          {t('admin:signIn')}
        </Button>
      </Stack>
    </form>
  );
}

/**
 * The code of a link stands after `#`, so that it is sent to no server and is in no log. It is taken out of
 * the address, so that it is not in the history either.
 */
export function codeInAddress(name: string): string {
  const code = new URLSearchParams(location.hash.slice(1)).get(name) ?? '';
  if (code !== '') history.replaceState(null, '', location.pathname + location.search);
  return code;
}

function Remote() {
  const t = useT();
  return (
    <Stack>
      <RemoteForm
        onSigner={async (signer) => {
          await signInWith(signer);
          await signer.close();
          // A whole load: the other pages may not connect to other relays.
          location.assign(`${adminBase}/`);
        }}
      />
      <Anchor href={`${adminBase}/`} size="sm">
        {t('admin:back')}
      </Anchor>
    </Stack>
  );
}
