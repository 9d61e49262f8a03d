"""The running thing: router, actor hosts, hub, and their place among other nodes. `hopline.Node` is the front door."""
