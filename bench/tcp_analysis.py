"""Compares the fields of `packets` with those of tshark, field by field: docs/decisions/tcp-analysis.md.

STREAMLINE=target/debug/streamline python3 bench/tcp_analysis.py CAPTURE ...   (V=N shows N differences a field)
"""
import collections
import os
import subprocess
import sys

B = os.environ.get('STREAMLINE', 'streamline')
FLAGS=['retransmission','fast_retransmission','spurious_retransmission','out_of_order','lost_segment','ack_lost_segment','duplicate_ack','window_update','window_full','zero_window','zero_window_probe','zero_window_probe_ack','keep_alive','keep_alive_ack','reused_ports']
PAIRS=[(f'tcp.analysis.{f}',f'tcp.analysis.{f}') for f in FLAGS]+[
 ('tcp.analysis.duplicate_ack_num','tcp.analysis.duplicate_ack_num'),('tcp.analysis.acks_frame','tcp.analysis.acks_frame'),
 ('tcp.analysis.ack_rtt_us','tcp.analysis.ack_rtt'),('tcp.analysis.initial_rtt_us','tcp.analysis.initial_rtt'),('tcp.analysis.rto_us','tcp.analysis.rto'),
 ('tcp.analysis.bytes_in_flight','tcp.analysis.bytes_in_flight'),('tcp.analysis.push_bytes_sent','tcp.analysis.push_bytes_sent'),
 ('tcp.window_size','tcp.window_size'),('tcp.stream','tcp.stream'),('tcp.seq_relative','tcp.seq'),('tcp.ack_relative','tcp.ack'),('tcp.flags','tcp.flags'),
 ('flow.time_delta_us','tcp.time_delta'),('frame.time_delta_us','frame.time_delta'),
 ('ip.ttl','ip.ttl'),('ip.id','ip.id'),('ip.dscp','ip.dsfield.dscp'),('ip.ecn','ip.dsfield.ecn'),('ether.src_mac','eth.src'),('ether.dest_mac','eth.dst'),('arp.opcode','arp.opcode'),('arp.src_ip','arp.src.proto_ipv4'),('arp.dest_mac','arp.dst.hw_mac')]
def norm(theirs,name,v):
    if v=='' : return ''
    v=v.split(',')[0]
    if name in('tcp.analysis.ack_rtt','tcp.analysis.initial_rtt','tcp.analysis.rto','tcp.time_delta','frame.time_delta'):
        from decimal import Decimal
        return str(max(0,int(Decimal(v)*1000000)))
    if name=='ip.id': return str(int(v,16))
    if name=='arp.opcode': return {'1':'request','2':'reply'}.get(v,v)
    return v
total=collections.Counter(); diff=collections.Counter(); files=collections.defaultdict(list); frames=0
verbose=os.environ.get('V')
for f in sys.argv[1:]:
    t=subprocess.run(['tshark','-n','-r',f,'-o','tcp.reassemble_out_of_order:FALSE','-o','ip.defragment:FALSE','-o','tcp.desegment_tcp_streams:FALSE','-T','fields','-E','occurrence=a','-e','frame.protocols']+sum([['-e',b] for a,b in PAIRS],[]),capture_output=True,text=True,errors='replace')
    o=subprocess.run([B,'run','-q','--stats','none',f'pcap "{f}" | packets | fields '+' '.join(a for a,b in PAIRS)+' proto ip.fragment_offset header=no'],capture_output=True,text=True,errors='replace')
    T=t.stdout.split('\n')[:-1]; O=o.stdout.split('\n')[:-1]
    if len(T)!=len(O):
        print('LINES',f,len(T),len(O),o.stderr[:200]);
    for n,(x,y) in enumerate(zip(T,O),1):
        x=x.split('\t'); y=y.split('\t')
        prot=x[0]; x=x[1:]
        if prot.count(':ip')+prot.count(':ipv6')>1 or prot.count(':tcp')>1: continue   # tunnels, errors
        istcp = y[len(PAIRS)]=='TCP' and x[[b for a,b in PAIRS].index('tcp.flags')]!=''
        if istcp: frames+=1
        for (a,b),p,q in zip(PAIRS,x,y):
            if a=='tcp.flags': continue
            if a.startswith('tcp') or a=='flow.time_delta_us':
                if not istcp: continue
            p=norm(p,b,p)
            if a in ('flow.time_delta_us','ip.ttl','ip.id','ip.dscp','ip.ecn') and (p=='' or q==''): continue
            # flags: presence
            if a.split('.')[-1] in FLAGS:
                p='1' if p!='' else ''; q='1' if q!='' else ''
            if p!='' or q!='': total[a]+=1
            if p!=q and not (a=='tcp.analysis.initial_rtt_us' and p=='') and not (a=='tcp.ack_relative' and p=='0' and q=='') and not (a=='frame.time_delta_us' and n==1) and not (a=='tcp.analysis.ack_rtt_us' and p=='' and q=='0'):
                diff[a]+=1
                if len(files[a])<int(verbose or 6): files[a].append((os.path.basename(f),n,p,q))
print('tcp frames',frames)
for a,b in PAIRS: print(f'{a:42} {total[a]:8} differ {diff[a]:6}',files[a] if diff[a] else '')
